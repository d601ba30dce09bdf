// Package sandbox runs commands confined by gatekeeper and gives its report as values. The standard library only.
//
// The one rule: whatever goes wrong, the command does not run unconfined. Without a report there is an error.
package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Denial is one thing that was denied, however often.
type Denial struct {
	Layer   string  `json:"layer"`
	Syscall string  `json:"syscall"`
	Rule    string  `json:"rule"`
	Path    *string `json:"path"`
	Host    *string `json:"host"`
	Count   uint64  `json:"count"`
	// AllowWith holds flags of `gatekeeper run`, quoted for a shell; Grant takes it apart.
	AllowWith *string `json:"allow_with"`
}

// Report is what became of a command.
type Report struct {
	Schema     int      `json:"schema"`
	Outcome    string   `json:"outcome"` // exited, signaled, timeout, limit, refused, setup_failed, not_found
	ExitCode   int      `json:"exit_code"`
	Signal     *int     `json:"signal"`
	DurationMs uint64   `json:"duration_ms"`
	Error      string   `json:"error"`
	Denials    []Denial `json:"denials"`
}

// Runner says how commands are run. The zero value finds gatekeeper on PATH and grants nothing.
type Runner struct {
	Program string   // gatekeeper, by path or name
	Flags   []string // of every run, such as --profile write
	Dir     string
	Timeout time.Duration
	Stdin   io.Reader // nothing if nil
	// Stdout and Stderr get what the command says as it comes.
	Stdout, Stderr io.Writer
}

// Run runs words. The context's end is the end of the command and of everything that it started.
func (r Runner) Run(ctx context.Context, words ...string) (*Report, error) {
	return r.run(ctx, r.Flags, append([]string{"--"}, words...))
}

// Line runs a line for sh.
func (r Runner) Line(ctx context.Context, line string) (*Report, error) {
	return r.run(ctx, r.Flags, []string{"-c", line})
}

// Ask runs a line; where it failed for want of a grant, asks for that grant, and runs it again with it.
func (r Runner) Ask(ctx context.Context, line string, ask func(Denial) bool) (*Report, error) {
	flags := append([]string(nil), r.Flags...)
	for left := 4; ; left-- {
		report, err := r.run(ctx, flags, []string{"-c", line})
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
		flags = append(flags, grant...)
	}
}

func (r Runner) run(ctx context.Context, flags, command []string) (*Report, error) {
	program := r.Program
	if program == "" {
		program = "gatekeeper"
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	// The report before the flags: whatever those are, there is one.
	words := []string{"run", "--quiet", "--report-fd", "3"}
	if r.Timeout > 0 {
		words = append(words, "--timeout", fmt.Sprintf("%dms", (r.Timeout+time.Millisecond-1).Milliseconds()))
	}
	words = append(words, flags...)
	// The context kills gatekeeper by SIGKILL, whereupon its guardian ends the rest.
	cmd := exec.CommandContext(ctx, program, append(words, command...)...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Dir, r.Stdin, r.Stdout, r.Stderr
	if cmd.Stderr == nil {
		cmd.Stderr = &said
	}
	cmd.ExtraFiles = []*os.File{write}
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, err
	}
	text, readErr := io.ReadAll(read)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var report Report
	if readErr != nil || len(text) == 0 {
		return nil, fmt.Errorf("no report, %v: %s", err, strings.TrimSpace(said.String()))
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	if report.Schema != 1 {
		return nil, fmt.Errorf("a report of schema %d; this reads 1", report.Schema)
	}
	return &report, nil
}

// Grant gives the words of AllowWith. Paths in it may be chosen by the command: it is taken apart, never pasted.
func (d Denial) Grant() ([]string, error) {
	if d.AllowWith == nil {
		return nil, nil
	}
	var words []string
	var word strings.Builder
	started, quoted := false, false
	line := *d.AllowWith
	for at := 0; at < len(line); at++ {
		switch letter := line[at]; {
		case letter == '\'':
			started, quoted = true, !quoted
		case quoted:
			word.WriteByte(letter)
		case letter == '\\' && at+1 < len(line) && line[at+1] == '\'':
			started = true
			at++
			word.WriteByte('\'')
		case letter == '\\':
			return nil, errors.New("not a grant: " + line)
		case letter == ' ':
			if started {
				words = append(words, word.String())
			}
			started = false
			word.Reset()
		default:
			started = true
			word.WriteByte(letter)
		}
	}
	if quoted {
		return nil, errors.New("not a grant: " + line)
	}
	if started {
		words = append(words, word.String())
	}
	return words, nil
}
