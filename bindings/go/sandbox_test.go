package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// place makes an empty working directory, with stages outside of it.
func place(t *testing.T) string {
	top := t.TempDir()
	work := filepath.Join(top, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(top, "state"))
	return work
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func must(t *testing.T, report *Report, err error) *Report {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func eventuallyNone(t *testing.T, mark string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); exec.Command("pgrep", "-f", "sleep "+mark).Run() == nil; {
		if time.Now().After(until) {
			t.Fatal("the command still runs")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestACommandIsRunAndReported(t *testing.T) {
	report, err := Runner{Dir: place(t)}.Run(context.Background(), "echo", "one word", "$HOME")
	if must(t, report, err); string(report.Stdout) != "one word $HOME\n" || report.Check() != nil || !report.Ran() {
		t.Fatalf("%+v", report)
	}
	report, err = Runner{Stdin: bytes.NewReader([]byte{255, 0, 10})}.Run(context.Background(), "cat")
	if must(t, report, err); !bytes.Equal(report.Stdout, []byte{255, 0, 10}) {
		t.Fatalf("%q", report.Stdout)
	}
}

func TestWhatIsDeniedIsNamedWithItsGrant(t *testing.T) {
	work := place(t)
	runner := Runner{Dir: work}
	report, err := runner.Run(context.Background(), "touch", "new")
	must(t, report, err)
	var failed *RunError
	if !errors.As(report.Check(), &failed) || !strings.Contains(failed.Error(), "denied: openat") || exists(filepath.Join(work, "new")) {
		t.Fatalf("%+v", report)
	}
	grant, err := report.Denials[0].Grant()
	if err != nil || len(grant) != 2 || grant[0] != "--write" || grant[1] != work {
		t.Fatal(grant, err)
	}
	report, err = runner.LineAsking(context.Background(), "touch new", func(denial Denial) bool { return denial.Syscall == "openat" })
	if must(t, report, err); !report.OK() || !exists(filepath.Join(work, "new")) {
		t.Fatalf("%+v", report)
	}
	report, err = runner.RunAsking(context.Background(), func(Denial) bool { return true }, "touch", "two words")
	if must(t, report, err); !report.OK() || !exists(filepath.Join(work, "two words")) {
		t.Fatalf("%+v", report)
	}
	for line, good := range map[string]bool{"--write 'a'\\''b c'": true, "--write 'open": false, `--write a\b`: false} {
		words, err := Denial{AllowWith: &line}.Grant()
		if (err == nil) != good || good && words[1] != "a'b c" {
			t.Fatal(line, words, err)
		}
	}
}

func TestALineOrAValueIsNeverAFlag(t *testing.T) {
	work := place(t)
	report, err := Runner{Dir: work}.Line(context.Background(), `--profile=write -c touch\ new`)
	if must(t, report, err); report.OK() || exists(filepath.Join(work, "new")) {
		t.Fatalf("%+v", report)
	}
	var none *NoReportError
	if _, err := (Runner{Net: "--profile=write"}).Run(context.Background(), "true"); !errors.As(err, &none) {
		t.Fatal(err)
	}
	if _, err := (Runner{Program: "/nonexistent/gatekeeper"}).Run(context.Background(), "true"); !errors.As(err, &none) {
		t.Fatal(err)
	}
}

func TestVariablesAreSet(t *testing.T) {
	runner := Runner{Profiles: []string{"read"}, Env: map[string]string{"TOKEN": "s3cret", "HOME": "/elsewhere"}}
	report, err := runner.Line(context.Background(), `echo "$TOKEN-$HOME"`)
	if must(t, report, err); string(report.Stdout) != "s3cret-/elsewhere\n" {
		t.Fatalf("%+v", report)
	}
	report, err = runner.Line(context.Background(), `tr '\0' ' ' < /proc/$PPID/cmdline`)
	if must(t, report, err); strings.Contains(string(report.Stdout), "s3cret") {
		t.Fatalf("a value is on the command line: %s", report.Stdout)
	}
	runner.Env = map[string]string{}
	for _, name := range []string{"A", "B", "C", "D"} {
		runner.Env[name] = strings.Repeat("x", 100_000)
	}
	report, err = runner.Line(context.Background(), "echo $D | wc -c")
	if must(t, report, err); string(report.Stdout) != "100001\n" {
		t.Fatalf("%+v", report)
	}
	for name, value := range map[string]string{"A=B": "c", "A": "\xff", "B": "a\x00"} {
		runner.Env = map[string]string{name: value}
		if report, err := runner.Run(context.Background(), "true"); err == nil {
			t.Fatalf("%q: %+v", name, report)
		}
	}
}

func TestVariablesOfTheCommandDoNotChangeWhatIsProtected(t *testing.T) {
	named := filepath.Join(place(t), "cluster")
	if err := os.WriteFile(named, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := (Runner{}).Run(context.Background(), "cat", named)
	if must(t, report, err); string(report.Stdout) != "secret\n" {
		t.Fatalf("%+v", report)
	}
	t.Setenv("KUBECONFIG", named)
	report, err = Runner{Env: map[string]string{"KUBECONFIG": "/dev/null"}}.Run(context.Background(), "cat", named)
	if must(t, report, err); report.ExitCode != 1 || len(report.Stdout) != 0 || len(report.Denials) == 0 {
		t.Fatalf("%+v", report)
	}
}

// touch makes a file as soon as something is written to it.
type touch struct {
	path string
	text bytes.Buffer
}

func (t *touch) Write(data []byte) (int, error) {
	t.text.Write(data)
	return len(data), os.WriteFile(t.path, nil, 0o644)
}

func TestOutputStreamsAndTimeAndContextEndTheCommand(t *testing.T) {
	work := place(t)
	output := &touch{path: filepath.Join(work, "go")}
	runner := Runner{Profiles: []string{"read"}, Dir: work, Stdout: output}
	report, err := runner.Line(context.Background(), "echo first; until [ -e go ]; do sleep 0.02; done; echo last; exit 3")
	if must(t, report, err); output.text.String() != "first\nlast\n" || report.ExitCode != 3 {
		t.Fatalf("%q %+v", output.text.String(), report)
	}
	runner.Timeout = 200 * time.Millisecond
	report, err = runner.Line(context.Background(), "sleep 60")
	if must(t, report, err); report.Outcome != "timeout" {
		t.Fatalf("%+v", report)
	}
	mark := fmt.Sprintf("77.%d1", os.Getpid())
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	runner.Timeout = 0
	if _, err := runner.Line(ctx, "setsid sleep "+mark+" & sleep "+mark); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	eventuallyNone(t, mark)
}

func TestAFunctionDecidesWhileTheCallWaits(t *testing.T) {
	work := place(t)
	server, err := Runner{}.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ways := map[string]func(Runner, ...string) (*Report, error){
		"alone": func(with Runner, words ...string) (*Report, error) { return with.Run(context.Background(), words...) },
		"server": func(with Runner, words ...string) (*Report, error) {
			return server.Run(context.Background(), with, words...)
		},
	}
	for way, run := range ways {
		for _, decision := range []Decision{Once, ForRun, Deny, "maybe"} {
			path := filepath.Join(work, way+string(decision))
			ask := func(question Question) Decision {
				if question.Path == nil || *question.Path != path || question.Access != "write" {
					return Deny
				}
				return decision
			}
			granted := decision == Once || decision == ForRun
			report, err := run(Runner{Dir: work, Ask: ask}, "touch", path)
			if must(t, report, err); report.OK() != granted || exists(path) != granted {
				t.Fatalf("%s, %s: %+v", way, decision, report)
			}
		}
		// Without a function, nothing is asked.
		path := filepath.Join(work, way)
		report, err := run(Runner{Dir: work}, "touch", path)
		if must(t, report, err); report.OK() || exists(path) {
			t.Fatalf("%s: %+v", way, report)
		}
	}
}

func TestChangesWaitInAStage(t *testing.T) {
	work, ctx := place(t), context.Background()
	notes := filepath.Join(work, "notes")
	if err := os.WriteFile(notes, []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	runner := Runner{Profiles: []string{"write"}, Dir: work, Stage: "s"}
	report, err := runner.Line(ctx, "echo two >> notes; echo x > added")
	if must(t, report, err); !report.OK() {
		t.Fatalf("%+v", report)
	}
	stage := runner.StageNamed("s")
	changes, err := stage.Diff(ctx)
	if err != nil || len(changes) != 2 || changes[0].Path != "added" || changes[1].Change != "modified" {
		t.Fatal(changes, err)
	}
	if patch, err := stage.Patch(ctx); err != nil || !strings.Contains(string(patch), "+two\n") {
		t.Fatal(string(patch), err)
	}
	if err := os.WriteFile(notes, []byte("changed meanwhile\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := stage.Apply(ctx); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "notes") {
		t.Fatal(err)
	}
	if err := stage.Apply(ctx, "added"); err != nil || !exists(filepath.Join(work, "added")) {
		t.Fatal(err)
	}
	if err := stage.Discard(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := stage.Diff(ctx); err == nil || errors.Is(err, ErrConflict) {
		t.Fatal(err)
	}
}
