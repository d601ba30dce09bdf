// Package sandbox runs commands confined by gatekeeper and returns its report. It needs the gatekeeper program and only the standard
// library.
//
// A command never runs unconfined: if the sandbox cannot be set up, the command does not run, and if there is no report, there is an error.
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
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Decision answers a Question.
type Decision string

// Once allows this call; ForRun the same path (and below) or host until the run ends; Deny, and every other value, neither.
const (
	Once   Decision = "once"
	ForRun Decision = "run"
	Deny   Decision = "deny"
)

// Runner holds the settings of a run. The zero value finds gatekeeper by the variable GATEKEEPER or on PATH, and grants nothing.
type Runner struct {
	Program  string   // path or name of gatekeeper
	Profiles []string // minimal (the default), read, write, network
	Net      string   // none, own, loopback, full or hosts=...
	Flags    []string // more flags of `gatekeeper run`
	Dir      string
	Env      map[string]string // variables for the command
	Stage    string            // keep changes in the stage of this name
	Timeout  time.Duration
	Stdin    io.Reader // empty if nil
	// Stdout and Stderr receive the command's output as it is produced. If both are nil, the report has it.
	Stdout, Stderr io.Writer
	// Ask decides about each refused path, host and UNIX socket, on another goroutine, while the call waits: one question of a run after
	// another. Without it, they are denied.
	Ask func(Question) Decision
}

// Run runs a command given as words. Cancelling the context ends the command and everything it started.
func (r Runner) Run(ctx context.Context, words ...string) (*Report, error) {
	if len(words) == 0 {
		return nil, errors.New("sandbox: the command has no words")
	}
	return r.run(ctx, nil, append([]string{"--"}, words...))
}

// Line runs a line with sh.
func (r Runner) Line(ctx context.Context, line string) (*Report, error) {
	return r.run(ctx, nil, lineWords(line))
}

// In one word, so that a line that begins with a dash is no flag.
func lineWords(line string) []string {
	return []string{"-c=" + line}
}

// RunAsking runs a command. If it failed and something was denied, RunAsking calls ask for the grant and, on a yes, runs it again.
func (r Runner) RunAsking(ctx context.Context, ask func(Denial) bool, words ...string) (*Report, error) {
	if len(words) == 0 {
		return nil, errors.New("sandbox: the command has no words")
	}
	return r.runAsking(ctx, append([]string{"--"}, words...), ask)
}

// LineAsking does the same for a line with sh.
func (r Runner) LineAsking(ctx context.Context, line string, ask func(Denial) bool) (*Report, error) {
	return r.runAsking(ctx, lineWords(line), ask)
}

func (r Runner) runAsking(ctx context.Context, command []string, ask func(Denial) bool) (*Report, error) {
	var granted []string
	for left := 4; ; left-- {
		report, err := r.run(ctx, granted, command)
		if err != nil || report.Outcome != "exited" || report.ExitCode == 0 || left == 0 {
			return report, err
		}
		var wanted *Denial
		for at := range report.Denials {
			if report.Denials[at].AllowWith != nil {
				wanted = &report.Denials[at]
				break
			}
		}
		if wanted == nil || !ask(*wanted) {
			return report, nil
		}
		grant, err := wanted.Grant()
		if err != nil {
			return report, err
		}
		granted = append(granted, grant...)
	}
}

func (r Runner) program() string {
	for _, named := range []string{r.Program, os.Getenv("GATEKEEPER")} {
		if named != "" {
			return named
		}
	}
	return "gatekeeper"
}

// flags are those of the policy, without the working directory and the variables.
func (r Runner) flags() []string {
	var words []string
	for _, profile := range r.Profiles {
		words = append(words, "--profile", profile)
	}
	if r.Net != "" {
		words = append(words, "--net="+r.Net)
	}
	if r.Stage != "" {
		words = append(words, "--stage="+r.Stage)
	}
	if r.Timeout > 0 {
		words = append(words, "--timeout", fmt.Sprintf("%dms", (r.Timeout+time.Millisecond-1).Milliseconds()))
	}
	return append(words, r.Flags...)
}

// variables gives what `--env-fd` reads. They are no flags, because every user can read the command line of a process, and not in
// gatekeeper's own environment, because gatekeeper finds the caller's credentials by it.
func (r Runner) variables() ([]byte, error) {
	var text []byte
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("sandbox: %q is no name of a variable, or its value has a NUL", name)
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("sandbox: the variable %q or its value is no UTF-8", name)
		}
		text = append(text, name+"="+value+"\x00"...)
	}
	return text, nil
}

func (r Runner) run(ctx context.Context, granted, command []string) (*Report, error) {
	variables, err := r.variables()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	captures := r.Stdout == nil && r.Stderr == nil
	// Before the caller's flags, so that there is a report whatever they contain.
	words := []string{"run", "--quiet"}
	files := []*os.File{write}
	if captures {
		words, files = append(words, "--json"), nil
	} else {
		words = append(words, "--report-fd", "3")
	}
	var asking, asked *os.File
	if r.Ask != nil {
		ours, theirs, err := socketPair()
		if err != nil {
			write.Close()
			return nil, err
		}
		defer ours.Close()
		defer theirs.Close()
		words = append(words, "--ask-fd", fmt.Sprint(3+len(files)))
		files, asking, asked = append(files, theirs), ours, theirs
	}
	var setting *os.File
	if len(variables) > 0 {
		theirs, ours, err := os.Pipe()
		if err != nil {
			write.Close()
			return nil, err
		}
		defer theirs.Close()
		setting = ours
		defer setting.Close()
		words = append(words, "--env-fd", fmt.Sprint(3+len(files)))
		files = append(files, theirs)
	}
	words = append(words, r.flags()...)
	if r.Dir != "" {
		words = append(words, "--cwd="+r.Dir)
	}
	words = append(append(words, granted...), command...)
	// Cancelling the context kills gatekeeper with SIGKILL; its guardian then ends everything else.
	cmd := exec.CommandContext(ctx, r.program(), words...)
	var messages bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
	if captures {
		cmd.Stdout = write
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &messages
	}
	cmd.ExtraFiles = files
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, &NoReportError{err.Error(), err}
	}
	if asking != nil {
		// gatekeeper has its own copy; ours would keep the socket open after its end.
		asked.Close()
		go answer(asking, r.Ask)
	}
	if setting != nil {
		// gatekeeper reads them first of all. Without our copy of its end, this does not wait for one that has ended.
		files[len(files)-1].Close()
		_, _ = setting.Write(variables)
		setting.Close()
	}
	text, readErr := io.ReadAll(read)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if readErr != nil || len(text) == 0 {
		return nil, &NoReportError{fmt.Sprintf("%v: %s", err, strings.TrimSpace(messages.String())), err}
	}
	return parse(text)
}

// answer answers until gatekeeper ends. A line that cannot be read closes the socket: everything is denied.
func answer(asking *os.File, ask func(Question) Decision) {
	defer asking.Close()
	lines := bufio.NewScanner(asking)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var asked question
		if json.Unmarshal(lines.Bytes(), &asked) != nil {
			return
		}
		if asked.Withdrawn {
			continue
		}
		line, err := json.Marshal(asked.decidedBy(ask))
		if err != nil {
			return
		}
		if _, err := asking.Write(append(line, '\n')); err != nil {
			return
		}
	}
}

// question is a Question, or that one is no longer open.
type question struct {
	Question
	Withdrawn bool `json:"withdrawn"`
}

type decided struct {
	ID       uint64   `json:"id"`
	Decision Decision `json:"decision"`
}

func (q question) decidedBy(ask func(Question) Decision) decided {
	decision := ask(q.Question)
	if decision != Once && decision != ForRun {
		decision = Deny
	}
	return decided{q.ID, decision}
}

func socketPair() (ours, theirs *os.File, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// os.File reads such a descriptor by the poller, so that Close interrupts a read.
	if err := syscall.SetNonblock(pair[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(pair[0]), "ask"), os.NewFile(uintptr(pair[1]), "ask"), nil
}
