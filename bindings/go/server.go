package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"unicode/utf8"
)

// ErrServerGone means that the server has ended, or was closed, before it answered. Everything that it ran has ended too.
var ErrServerGone = errors.New("sandbox: the server has ended")

// The longest line that the server reads.
const longest = 16 << 20

// Server runs commands without starting gatekeeper for each, from any number of goroutines. Close ends every run.
type Server struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	done  chan struct{}

	// Apart from mutex: a write waits until the server reads, and it may read only after its answers are read.
	writing sync.Mutex

	mutex   sync.Mutex
	last    uint64
	waiting map[uint64]*serverRun
	// Why there are no more answers.
	gone error
}

type serverRun struct {
	stdout, stderr io.Writer
	// Receives one result; it has room for it, so that the reader never waits.
	ended chan result
	ask   func(Question) Decision
	// Held while ask decides.
	asking sync.Mutex
}

type result struct {
	report *Report
	err    error
}

// Serve starts a server. Only Program of the Runner matters here; each run has a Runner of its own.
func (r Runner) Serve() (*Server, error) {
	cmd := exec.Command(r.program(), "serve")
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, &NoReportError{err.Error(), err}
	}
	server := &Server{cmd: cmd, input: input, done: make(chan struct{}), waiting: map[uint64]*serverRun{}, gone: ErrServerGone}
	go server.read(output)
	return server, nil
}

// Run runs a command given as words, with the settings of the Runner. Cancelling the context ends the command and everything it started.
func (s *Server) Run(ctx context.Context, with Runner, words ...string) (*Report, error) {
	return s.run(ctx, with, map[string]any{"argv": words}, words...)
}

// Line runs a line with sh.
func (s *Server) Line(ctx context.Context, with Runner, line string) (*Report, error) {
	return s.run(ctx, with, map[string]any{"line": line}, line)
}

// Close ends every run, and the server.
func (s *Server) Close() error {
	// Killed, and not only its input closed: that would wait for the runs. The guardians end everything.
	err := s.cmd.Process.Kill()
	<-s.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (s *Server) run(ctx context.Context, with Runner, order map[string]any, words ...string) (*Report, error) {
	texts := append([]string{with.Dir}, words...)
	if with.Stdin != nil {
		text, err := io.ReadAll(with.Stdin)
		if err != nil {
			return nil, err
		}
		order["stdin"] = string(text)
		texts = append(texts, string(text))
	}
	if with.Dir != "" {
		order["cwd"] = with.Dir
	}
	if len(with.Env) > 0 {
		order["env"] = with.Env
	}
	flags := append([]string{}, with.flags()...)
	order["flags"] = flags
	if err := mustBeText(append(texts, flags...), with.Env); err != nil {
		return nil, err
	}
	order["stream"] = with.Stdout != nil || with.Stderr != nil
	order["ask"] = with.Ask != nil
	run := &serverRun{stdout: with.Stdout, stderr: with.Stderr, ended: make(chan result, 1), ask: with.Ask}
	id, err := s.send(order, run)
	if err != nil {
		return nil, err
	}
	select {
	case ended := <-run.ended:
		return ended.report, ended.err
	case <-ctx.Done():
		_, _ = s.send(map[string]any{"id": id, "cancel": true}, nil)
		// Its writers are not used after the end.
		<-run.ended
		return nil, ctx.Err()
	}
}

// mustBeText refuses what JSON cannot carry: encoding/json would put U+FFFD in its place.
func mustBeText(words []string, env map[string]string) error {
	for name, value := range env {
		words = append(words, name, value)
	}
	for _, word := range words {
		if !utf8.ValidString(word) {
			return errors.New("sandbox: a server takes UTF-8 only; use Runner.Run for other names, arguments and input")
		}
	}
	return nil
}

// send writes an order. With a run, it gets the next id and is remembered.
func (s *Server) send(order map[string]any, run *serverRun) (uint64, error) {
	s.mutex.Lock()
	if run != nil {
		s.last++
		order["id"] = s.last
	}
	id := s.last
	s.mutex.Unlock()
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(order); err != nil {
		return 0, err
	}
	if line.Len() > longest {
		return 0, fmt.Errorf("sandbox: a server takes %d bytes for one run at most; use Runner.Run for more input", longest)
	}
	s.mutex.Lock()
	if s.waiting == nil {
		defer s.mutex.Unlock()
		return 0, s.gone
	}
	if run != nil {
		s.waiting[id] = run
	}
	s.mutex.Unlock()
	s.writing.Lock()
	_, err := s.input.Write(line.Bytes())
	s.writing.Unlock()
	if err != nil {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if run != nil {
			delete(s.waiting, id)
		}
		return 0, s.gone
	}
	return id, nil
}

func (s *Server) read(output io.Reader) {
	defer close(s.done)
	lines := bufio.NewReaderSize(output, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if !s.take(line) {
			break
		}
	}
	// So that what the runs are told is true.
	_ = s.cmd.Process.Kill()
	s.mutex.Lock()
	for _, run := range s.waiting {
		run.ended <- result{nil, s.gone}
	}
	s.waiting = nil
	s.mutex.Unlock()
	_ = s.cmd.Wait()
}

// take hands an answer to its run. Without the id of a run, some run will never be answered, and take returns false.
func (s *Server) take(line []byte) bool {
	var answer struct {
		captured
		ID     *uint64         `json:"id"`
		Ask    *question       `json:"ask"`
		Error  *string         `json:"error"`
		Report json.RawMessage `json:"report"`
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.ID == nil {
		if answer.Error != nil {
			err = errors.New(*answer.Error)
		}
		s.mutex.Lock()
		s.gone = fmt.Errorf("%w: it could not read an order, and was ended: %v", ErrServerGone, err)
		s.mutex.Unlock()
		return false
	}
	id := *answer.ID
	s.mutex.Lock()
	run := s.waiting[id]
	if answer.Error != nil || answer.Report != nil {
		delete(s.waiting, id)
	}
	s.mutex.Unlock()
	switch {
	case run == nil:
	case answer.Ask != nil:
		if run.ask != nil && !answer.Ask.Withdrawn {
			go s.decide(id, run, *answer.Ask)
		}
	case answer.Error != nil:
		run.ended <- result{nil, &NoReportError{Message: *answer.Error}}
	case answer.Report != nil:
		report, err := parse(answer.Report)
		run.ended <- result{report, err}
	default:
		stdout, stderr, err := answer.bytes()
		if err == nil && run.stdout != nil && stdout != nil {
			_, _ = run.stdout.Write(stdout)
		}
		if err == nil && run.stderr != nil && stderr != nil {
			_, _ = run.stderr.Write(stderr)
		}
	}
	return true
}

// decide answers a question of a run, unless the run has ended meanwhile.
func (s *Server) decide(id uint64, run *serverRun, asked question) {
	run.asking.Lock()
	defer run.asking.Unlock()
	s.mutex.Lock()
	open := s.waiting[id] == run
	s.mutex.Unlock()
	if open {
		_, _ = s.send(map[string]any{"id": id, "answer": asked.decidedBy(run.ask)}, nil)
	}
}
