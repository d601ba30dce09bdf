// Package sandbox runs commands confined by gatekeeper and returns its report. It needs only the standard library.
//
// A command never runs unconfined: if there is no report, there is an error.
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

// Denial is one denied operation; Count says how often it was tried.
type Denial struct {
	Layer   string  `json:"layer"`
	Syscall string  `json:"syscall"`
	Rule    string  `json:"rule"`
	Path    *string `json:"path"`
	Host    *string `json:"host"`
	Count   uint64  `json:"count"`
	// AllowWith holds flags for `gatekeeper run`, quoted for a shell; Grant splits it into words.
	AllowWith *string `json:"allow_with"`
}

// Report says how a command ended and what was denied.
type Report struct {
	Schema     int      `json:"schema"`
	Outcome    string   `json:"outcome"` // exited, signaled, timeout, limit, refused, setup_failed, not_found
	ExitCode   int      `json:"exit_code"`
	Signal     *int     `json:"signal"`
	DurationMs uint64   `json:"duration_ms"`
	Error      string   `json:"error"`
	Denials    []Denial `json:"denials"`
}

// Runner holds the settings of a run. The zero value finds gatekeeper on PATH and grants nothing.
type Runner struct {
	Program string   // path or name of gatekeeper
	Flags   []string // passed to every run, such as --profile write
	Dir     string
	Timeout time.Duration
	Stdin   io.Reader // empty if nil
	// Stdout and Stderr receive the command's output as it is produced.
	Stdout, Stderr io.Writer
}

// Run runs a command given as words. Cancelling the context ends the command and everything it started.
func (r Runner) Run(ctx context.Context, words ...string) (*Report, error) {
	return r.run(ctx, r.Flags, append([]string{"--"}, words...))
}

// Line runs a line with sh.
func (r Runner) Line(ctx context.Context, line string) (*Report, error) {
	return r.run(ctx, r.Flags, []string{"-c", line})
}

// Ask runs a line. If it failed and something was denied, Ask calls ask for the grant and, on a yes, runs the line again with it.
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
	// Before the caller's flags, so that there is a report whatever they contain.
	words := []string{"run", "--quiet", "--report-fd", "3"}
	if r.Timeout > 0 {
		words = append(words, "--timeout", fmt.Sprintf("%dms", (r.Timeout+time.Millisecond-1).Milliseconds()))
	}
	words = append(words, flags...)
	// Cancelling the context kills gatekeeper with SIGKILL; its guardian then ends everything else.
	cmd := exec.CommandContext(ctx, program, append(words, command...)...)
	var messages bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Dir, r.Stdin, r.Stdout, r.Stderr
	if cmd.Stderr == nil {
		cmd.Stderr = &messages
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
		return nil, fmt.Errorf("no report, %v: %s", err, strings.TrimSpace(messages.String()))
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	if report.Schema != 1 {
		return nil, fmt.Errorf("unsupported report schema %d, expected 1", report.Schema)
	}
	return &report, nil
}

// Grant splits AllowWith into words. The confined command may have chosen a path in it, so never paste it into a shell line.
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
