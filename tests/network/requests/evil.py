# A TLS server whose answers are wrong in the way that the last part of the path names.
import socket, ssl, sys, threading, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[1])
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(50)
print(listener.getsockname()[1], flush=True)
OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "fine": OK + b"Content-Length: 2\r\n\r\nok",
    "early": OK + b"Content-Length: 100\r\n\r\nshort",
    "cut": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "none": b"",
    "garbage": b"SSH-2.0-x\r\n\r\n",
    "hints": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 20000 + OK + b"Content-Length: 2\r\n\r\nok",
    "head": OK + b"".join(b"X-%d: %s\r\n" % (at, b"y" * 8000) for at in range(100)) + b"Content-Length: 2\r\n\r\nok",
    "many": OK + b"".join(b"X-%d: y\r\n" % at for at in range(5000)) + b"Content-Length: 2\r\n\r\nok",
    "two": OK + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\nhello",
    "both": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
    "extra": OK + b"Content-Length: 2\r\n\r\nok" + OK + b"Content-Length: 4\r\n\r\nevil",
}
def serve(client):
    try:
        client = context.wrap_socket(client, server_side=True)
        client.settimeout(20)
        head = b""
        while b"\r\n\r\n" not in head:
            block = client.recv(4096)
            if not block: return
            head += block
        open(sys.argv[3], "ab").write(head.split(b"\r\n")[0] + b"\n")
        how = head.split(b" ")[1].decode().split("?")[0].rsplit("/", 1)[-1]
        words = [line.split()[-1] for line in head.split(b"\r\n") if line.lower().startswith(b"authorization")]
        if how == "redirect":
            client.sendall(b"HTTP/1.1 302 Found\r\nLocation: https://other.test/?t=" + words[0] + b"\r\nContent-Length: 0\r\n\r\n")
        elif how == "endless":
            client.sendall(OK + b"X: ")
            while True: client.sendall(b"y" * 65536)
        else:
            client.sendall(ANSWERS[how])
            if how == "extra": time.sleep(1)
        client.close()
    except OSError: pass
while True:
    client, _ = listener.accept()
    threading.Thread(target=serve, args=(client,), daemon=True).start()
