package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Denial is one denied operation; Count says how often it was tried.
type Denial struct {
	Layer   string  `json:"layer"`
	Syscall string  `json:"syscall"`
	Rule    string  `json:"rule"`
	Path    *string `json:"path"`
	Host    *string `json:"host"`
	Count   uint64  `json:"count"`
	// AllowWith holds flags for another run, quoted for a shell; Grant splits it into words.
	AllowWith *string `json:"allow_with"`
}

// Layer is what one layer enforced; Status is enforced, partial, unavailable or off.
type Layer struct {
	Layer  string `json:"layer"`
	Status string `json:"status"`
	Detail string `json:"detail"`
}

// Question is a refused call that waits for a decision. Its texts come from the confined program: escape them before you print them.
type Question struct {
	ID        uint64   `json:"id"`
	Kind      string   `json:"kind"`   // path, host or socket
	Access    string   `json:"access"` // read, write or connect
	Syscall   string   `json:"syscall"`
	Path      *string  `json:"path"`
	Host      *string  `json:"host"`
	Comm      string   `json:"comm"`
	PID       int      `json:"pid"`
	Argv      []string `json:"argv"`
	AllowWith *string  `json:"allow_with"`
	Rule      string   `json:"rule"`
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
	Layers     []Layer  `json:"layers"`
	// Stdout and Stderr hold the captured output, its beginning and its end. They are empty if the Runner has writers for it.
	Stdout []byte `json:"-"`
	Stderr []byte `json:"-"`
	// Raw is the whole document as gatekeeper wrote it.
	Raw json.RawMessage `json:"-"`
}

// OK says whether the command exited with 0.
func (r *Report) OK() bool {
	return r.Outcome == "exited" && r.ExitCode == 0
}

// Ran says whether the command was started.
func (r *Report) Ran() bool {
	return r.Outcome != "refused" && r.Outcome != "setup_failed" && r.Outcome != "not_found"
}

// Check returns nil if the command exited with 0, and a *RunError otherwise.
func (r *Report) Check() error {
	if r.OK() {
		return nil
	}
	return &RunError{r}
}

// RunError is a run that did not exit with 0. Report.Outcome says how it ended.
type RunError struct {
	Report *Report
}

func (e *RunError) Error() string {
	text := fmt.Sprintf("%s, exit status %d", e.Report.Outcome, e.Report.ExitCode)
	if e.Report.Error != "" {
		text += ": " + e.Report.Error
	}
	if len(e.Report.Denials) > 0 {
		denial := e.Report.Denials[0]
		text += "; denied: " + denial.Syscall
		for _, what := range []*string{denial.Path, denial.Host} {
			if what != nil {
				text += " " + *what
			}
		}
		text += " (" + denial.Rule + ")"
	}
	return text
}

// NoReportError means that gatekeeper wrote no report: it is missing, its flags are wrong, or it was killed.
type NoReportError struct {
	Message string
	Err     error
}

func (e *NoReportError) Error() string {
	return "no report: " + e.Message
}

func (e *NoReportError) Unwrap() error {
	return e.Err
}

// captured is the output in a report, or in an answer of the server.
type captured struct {
	Stdout       *string `json:"stdout"`
	Stderr       *string `json:"stderr"`
	StdoutBase64 *string `json:"stdout_base64"`
	StderrBase64 *string `json:"stderr_base64"`
}

func (c captured) bytes() (stdout, stderr []byte, err error) {
	exact := func(text, encoded *string) []byte {
		switch {
		case encoded != nil:
			decoded, wrong := base64.StdEncoding.DecodeString(*encoded)
			if wrong != nil {
				err = wrong
			}
			return decoded
		case text != nil:
			return []byte(*text)
		}
		return nil
	}
	return exact(c.Stdout, c.StdoutBase64), exact(c.Stderr, c.StderrBase64), err
}

func parse(text []byte) (*Report, error) {
	var report Report
	var output captured
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, &NoReportError{"the report is not JSON", err}
	}
	if report.Schema != 1 {
		return nil, &NoReportError{Message: fmt.Sprintf("unsupported report schema %d, expected 1", report.Schema)}
	}
	if err := json.Unmarshal(text, &output); err != nil {
		return nil, &NoReportError{"the report is not JSON", err}
	}
	var err error
	if report.Stdout, report.Stderr, err = output.bytes(); err != nil {
		return nil, &NoReportError{"the captured output is not base64", err}
	}
	report.Raw = text
	return &report, nil
}

// Grant splits AllowWith into words; none if no flag would allow it. The confined command may have chosen a path in it, so never paste it
// into a shell line.
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
			return nil, fmt.Errorf("not a grant: %s", line)
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
		return nil, fmt.Errorf("not a grant: %s", line)
	}
	if started {
		words = append(words, word.String())
	}
	return words, nil
}
