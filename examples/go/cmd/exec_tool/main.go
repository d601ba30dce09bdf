// An exec tool: exec_tool [-yes] [-timeout SECONDS] [-ask] [-stage NAME] LINE
//
// Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the
// line again; without a terminal it grants only with -yes. The variable GATEKEEPER names the gatekeeper program.
// With -ask, a refused call waits for the answer instead, and the line runs once.
// With -stage, changes of the working directory wait in a stage: they are shown, and applied after a yes.
// With -preload it executes the words itself, under the embedded libsandbox.so.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"gatekeeper.example/sandbox"
	"gatekeeper.example/tools/carried"
)

func main() {
	yes := flag.Bool("yes", false, "grant every request without asking")
	timeout := flag.Float64("timeout", 60, "time limit in seconds")
	asks := flag.Bool("ask", false, "ask while the refused call waits, and run the line once")
	stage := flag.String("stage", "", "keep changes in the stage of this name, show them, and ask whether to apply them")
	preload := flag.Bool("preload", false, "execute the words under the embedded libsandbox.so")
	flag.Parse()
	if *preload {
		fail(execute(flag.Args()))
	}
	read, write := io.Pipe()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			fmt.Println("| " + lines.Text())
		}
	}()
	runner := sandbox.Runner{
		Stage:   *stage,
		Timeout: time.Duration(*timeout * float64(time.Second)),
		Stdout:  write,
		Stderr:  os.Stderr,
	}
	if *stage != "" {
		runner.Profiles = []string{"write"}
	}
	line, ctx := strings.Join(flag.Args(), " "), context.Background()
	var report *sandbox.Report
	var err error
	if *asks {
		runner.Ask = func(question sandbox.Question) sandbox.Decision {
			// The path is the program's own text: %q escapes what a terminal would obey.
			what := question.Path
			if what == nil {
				what = question.Host
			}
			fmt.Printf("%q wants to %s %q\n", question.Comm, question.Access, *what)
			if *yes || agreed("allow it?") {
				return sandbox.Once
			}
			return sandbox.Deny
		}
		report, err = runner.Line(ctx, line)
	} else {
		report, err = runner.LineAsking(ctx, line, func(denial sandbox.Denial) bool {
			fmt.Println("denied; to be granted: " + *denial.AllowWith)
			return *yes || agreed("grant it, and run the line again?")
		})
	}
	if err != nil {
		fail(err)
	}
	write.Close()
	<-shown
	if *stage != "" && report.Ran() {
		staged := runner.StageNamed(*stage)
		patch, err := staged.Patch(ctx)
		if err != nil {
			fail(err)
		}
		os.Stdout.Write(patch)
		if len(patch) > 0 && (*yes || agreed("apply these changes?")) {
			if err := staged.Apply(ctx); err != nil {
				fail(err)
			}
			fmt.Println("applied")
		}
	}
	fmt.Println(report.Outcome, report.ExitCode)
	os.Exit(report.ExitCode)
}

// agreed asks on the terminal. Without a terminal the answer is no.
func agreed(prompt string) bool {
	input, err := os.Readlink("/proc/self/fd/0")
	if err != nil || !strings.HasPrefix(input, "/dev/pts/") && !strings.HasPrefix(input, "/dev/tty") {
		return false
	}
	fmt.Print(prompt + " [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func execute(words []string) error {
	library, err := carried.Path()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(words[0])
	if err != nil {
		return err
	}
	// Without SANDBOX_REQUIRED, the library does nothing if no variable is set.
	environment := append(os.Environ(), "LD_PRELOAD="+library, "SANDBOX_REQUIRED=1")
	return syscall.Exec(program, words, environment)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "exec_tool:", err)
	os.Exit(125)
}
