package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ErrConflict means that files changed in the real tree meanwhile, and that nothing was applied. The error's text names each of them.
var ErrConflict = errors.New("conflict")

// Change is one change that waits in a stage.
type Change struct {
	Path   string  `json:"path"`
	Change string  `json:"change"` // added, modified, deleted, mode or type
	Kind   string  `json:"kind"`   // file, dir, symlink or special
	Size   *uint64 `json:"size"`
	SHA256 *string `json:"sha256"`
}

// Stage holds the changes of runs with its name. Nothing of them is in the real tree before Apply.
type Stage struct {
	Name    string
	program string
}

// StageNamed gives the stage of a name, for reading and deciding.
func (r Runner) StageNamed(name string) Stage {
	return Stage{name, r.program()}
}

// Diff lists every change, sorted by path.
func (s Stage) Diff(ctx context.Context) ([]Change, error) {
	text, err := s.call(ctx, 1, "diff", "--json", "--", s.Name)
	if err != nil {
		return nil, err
	}
	var changes []Change
	return changes, json.Unmarshal(text, &changes)
}

// Patch gives the changes as a patch for `git apply` and `patch -p1`.
func (s Stage) Patch(ctx context.Context) ([]byte, error) {
	return s.call(ctx, 1, "diff", "--", s.Name)
}

// Apply takes all changes, or those at and below paths, into the real tree. If files changed there meanwhile, it changes nothing, and the
// error is ErrConflict. Files that decide what other programs run are refused.
func (s Stage) Apply(ctx context.Context, paths ...string) error {
	_, err := s.call(ctx, 0, append([]string{"apply", "--", s.Name}, paths...)...)
	return err
}

// Discard throws the changes away.
func (s Stage) Discard(ctx context.Context) error {
	_, err := s.call(ctx, 0, "discard", "--", s.Name)
	return err
}

// call runs a command of `gatekeeper stage`. Status 1 is "there are changes" for diff (good is 1 there), and a conflict for apply.
func (s Stage) call(ctx context.Context, good int, words ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.program, append([]string{"stage"}, words...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	switch {
	case err == nil, errors.As(err, &exited) && exited.ExitCode() == good:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case exited != nil && exited.ExitCode() == 1:
		return nil, fmt.Errorf("%w: %s", ErrConflict, strings.TrimSpace(stderr.String()))
	}
	return nil, fmt.Errorf("stage %s: %w: %s", s.Name, err, strings.TrimSpace(stderr.String()))
}
