// An exec tool: exec_tool [-yes] [-timeout SECONDS] [-stage NAME] LINE
//
// Runs LINE confined and streams its output. If something was denied, it asks on the terminal whether to grant it and runs the
// line again; without a terminal it grants only with -yes. The variable GATEKEEPER names the gatekeeper program.
// With -stage, changes of the working directory wait in a stage, and are shown.
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
	stage := flag.String("stage", "", "keep changes in the stage of this name, and show them")
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
	report, err := runner.LineAsking(context.Background(), strings.Join(flag.Args(), " "), func(denial sandbox.Denial) bool {
		fmt.Println("denied; to be granted: " + *denial.AllowWith)
		return *yes || agreed()
	})
	if err != nil {
		fail(err)
	}
	write.Close()
	<-shown
	if *stage != "" && report.Ran() {
		patch, err := runner.StageNamed(*stage).Patch(context.Background())
		if err != nil {
			fail(err)
		}
		os.Stdout.Write(patch)
	}
	fmt.Println(report.Outcome, report.ExitCode)
	os.Exit(report.ExitCode)
}

// agreed asks on the terminal. Without a terminal the answer is no.
func agreed() bool {
	input, err := os.Readlink("/proc/self/fd/0")
	if err != nil || !strings.HasPrefix(input, "/dev/pts/") && !strings.HasPrefix(input, "/dev/tty") {
		return false
	}
	fmt.Print("grant it, and run the line again? [y/N] ")
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
