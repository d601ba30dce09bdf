package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAServerRefusesWhatJSONCannotCarry(t *testing.T) {
	server, err := Runner{}.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	background := context.Background()
	long := Runner{Stdin: strings.NewReader(strings.Repeat("x", 17<<20))}
	wrong := map[string]func() (*Report, error){
		"an argument": func() (*Report, error) { return server.Run(background, Runner{}, "cat", "\xff.txt") },
		"a line":      func() (*Report, error) { return server.Line(background, Runner{}, "echo \xff") },
		"a variable": func() (*Report, error) {
			return server.Run(background, Runner{Env: map[string]string{"A": "\xff"}}, "true")
		},
		"input": func() (*Report, error) {
			return server.Run(background, Runner{Stdin: strings.NewReader("\xff")}, "cat")
		},
		"a flag":     func() (*Report, error) { return server.Run(background, Runner{Flags: []string{"--read=\xff"}}, "true") },
		"a long one": func() (*Report, error) { return server.Run(background, long, "cat") },
	}
	for what, call := range wrong {
		if report, err := call(); err == nil {
			t.Fatalf("%s: %+v", what, report)
		}
	}
	report, err := server.Run(background, Runner{}, "echo", "<&>")
	if must(t, report, err); string(report.Stdout) != "<&>\n" {
		t.Fatalf("%+v", report)
	}
}

// While one run sends much output, others send much input and are cancelled.
func TestAServerReadsAndWritesAtTheSameTime(t *testing.T) {
	server, err := Runner{}.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	until := time.Now().Add(5 * time.Second)
	ended := make(chan error)
	again := func(run func(context.Context) error) {
		go func() {
			for time.Now().Before(until) {
				if err := run(context.Background()); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	again(func(all context.Context) error {
		_, err := server.Line(all, Runner{Profiles: []string{"read"}, Stdout: io.Discard}, "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 20000000")
		return err
	})
	for count := 0; count < 3; count++ {
		again(func(all context.Context) error {
			soon, cancel := context.WithTimeout(all, 3*time.Millisecond)
			defer cancel()
			if _, err := server.Run(soon, Runner{}, "true"); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
		again(func(all context.Context) error {
			_, err := server.Run(all, Runner{Stdin: strings.NewReader(strings.Repeat("x", 1_000_000))}, "true")
			return err
		})
	}
	for count := 0; count < 7; count++ {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("the server and its client wait for each other")
		}
	}
}

func TestARunOfTheServerMayEndWhileItsFunctionDecides(t *testing.T) {
	work := place(t)
	server, err := Runner{}.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	decided := make(chan struct{})
	ask := func(Question) Decision {
		cancel()
		<-decided
		return Once
	}
	if _, err := server.Run(ctx, Runner{Dir: work, Ask: ask}, "touch", "new"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(decided)
	report, err := server.Run(context.Background(), Runner{}, "echo", "next")
	if must(t, report, err); string(report.Stdout) != "next\n" || exists(filepath.Join(work, "new")) {
		t.Fatalf("%+v", report)
	}
}

func TestAServerRunsManyCommandsAtOnce(t *testing.T) {
	server, err := Runner{}.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	with := Runner{Profiles: []string{"read"}}
	var all sync.WaitGroup
	for number := 0; number < 12; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			report, err := server.Run(context.Background(), with, "echo", fmt.Sprint(number))
			if err != nil || string(report.Stdout) != fmt.Sprintf("%d\n", number) {
				t.Error(number, report, err)
			}
		}(number)
	}
	all.Wait()
	var output bytes.Buffer
	streaming := Runner{Profiles: []string{"read"}, Stdout: &output, Dir: "/", Stdin: strings.NewReader("text\n"), Env: map[string]string{"A": "b"}}
	if report, err := server.Line(context.Background(), streaming, "cat; pwd; echo $A"); err != nil || !report.OK() || output.String() != "text\n/\nb\n" {
		t.Fatal(output.String(), report, err)
	}
	mark := fmt.Sprintf("78.%d2", os.Getpid())
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := server.Run(ctx, with, "sleep", mark); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	eventuallyNone(t, mark)
	var none *NoReportError
	if _, err := server.Run(context.Background(), Runner{Profiles: []string{"raed"}}, "true"); !errors.As(err, &none) || !strings.Contains(err.Error(), "raed") {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := server.Run(context.Background(), with, "sleep", mark)
		ended <- err
	}()
	time.Sleep(300 * time.Millisecond)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrServerGone) {
		t.Fatal(err)
	}
	eventuallyNone(t, mark)
}
