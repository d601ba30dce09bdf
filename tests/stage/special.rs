//! Changes of FIFOs, sockets and devices, and of what becomes a directory: no patch has them, so lines name each.

use super::*;

#[test]
fn a_special_file_that_goes_is_named() {
    for user in users() {
        let place = place(user);
        sh(&place, "mkfifo q");
        staged(&place, "rm q").exits(0);
        place.run(&["stage", "diff", "s"]).exits(1).prints("# q: deleted, special file\n");
        let stat = place.run(&["stage", "diff", "--stat", "s"]);
        stat.exits(1).prints(" q | deleted special file\n 1 change, 0 lines added, 0 removed\n");
        assert_eq!(changes(&place)[0]["kind"], "special");
        place.run(&["stage", "apply", "s"]).exits(0).prints("1 change applied\n");
        sh(&place, "test ! -e q");
    }
}

#[test]
fn what_replaces_a_special_file_is_named_and_not_in_the_patch() {
    for user in users() {
        let place = place(user);
        sh(&place, "mkfifo a b c; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('d')\"");
        staged(&place, "rm a b c d; echo x > a; ln -s text b; mkdir c; echo y > c/y; echo z > d; echo four >> text")
            .exits(0);
        let diff = place.run(&["stage", "diff", "s"]);
        diff.exits(1);
        let sum = sh(&place, "echo x | sha256sum").stdout();
        let expected = [
            format!("# a: type, file, 2 bytes, sha256 {} in the place of a special file", &sum[..64]),
            "# b: type, symbolic link to text in the place of a special file".to_owned(),
            "# c: type, directory in the place of a special file".to_owned(),
            "# c/y: added, file, 2 bytes, sha256 ".to_owned(),
            "# d: type, file, 2 bytes, sha256 ".to_owned(),
        ];
        for line in expected {
            assert!(diff.stdout().contains(&line), "{line}: {diff}");
        }
        assert_eq!(diff.stdout().matches("diff --git").count(), 1, "{diff}");
        fs::write(place.at("tmp/patch"), &diff.output.stdout).expect("own directory");
        sh(
            &place,
            "mkdir ../git; cp text ../git; cd ../git && git init -q . && git apply ../tmp/patch && grep -q four text",
        );
        place.run(&["stage", "apply", "s"]).exits(0).prints("6 changes applied\n");
        sh(&place, "test -f a; test -L b; test -f c/y; test -f d");
    }
}

#[test]
fn a_file_or_link_that_becomes_a_directory_has_a_line_beside_its_deletion() {
    for user in users() {
        for made in ["text", "link", "empty"] {
            let place = place(user);
            sh(&place, "touch empty");
            staged(&place, &format!("rm {made}; mkdir {made}")).exits(0);
            let diff = place.run(&["stage", "diff", "s"]);
            diff.exits(1);
            assert!(diff.stdout().starts_with(&format!("# {made}: type, directory\n")), "{diff}");
            assert!(diff.stdout().contains("\ndeleted file mode "), "{diff}");
            let stat = place.run(&["stage", "diff", "--stat", "s"]);
            assert!(stat.stdout().starts_with(&format!(" {made} | type directory\n")), "{stat}");
            place.run(&["stage", "apply", "s"]).exits(0);
            sh(&place, &format!("test -d {made}"));
        }
    }
}
