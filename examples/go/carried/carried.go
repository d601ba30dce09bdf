// Package carried embeds libsandbox.so in the program and writes it to a file for LD_PRELOAD.
//
// Before building, put the library beside this file: gatekeeper extract carried/libsandbox.so
package carried

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed libsandbox.so
var library []byte

// Path writes the library to a private directory below XDG_RUNTIME_DIR or the user's cache, unless it is there already, and
// compares it byte by byte on every use. On an error, do not start the program: a loader that cannot open a preload library
// continues without it.
func Path() (string, error) {
	bases := []string{os.Getenv("XDG_RUNTIME_DIR")}
	if cache, err := os.UserCacheDir(); err == nil {
		bases = append(bases, cache)
	}
	reasons := "no private directory for libsandbox.so"
	for _, base := range bases {
		if !filepath.IsAbs(base) {
			continue
		}
		path, err := below(base)
		if err == nil {
			return path, nil
		}
		reasons += "; " + err.Error()
	}
	return "", errors.New(reasons)
}

func below(base string) (string, error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	base, err := filepath.EvalSymlinks(base)
	if err != nil {
		return "", err
	}
	directory := filepath.Join(base, "libsandbox")
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	for place, others := range map[string]fs.FileMode{base: 0o022, directory: 0o077} {
		info, err := os.Lstat(place)
		if err != nil {
			return "", err
		}
		if !info.IsDir() || !own(info) || info.Mode().Perm()&others != 0 {
			return "", fmt.Errorf("%s is not this user's alone", place)
		}
	}
	// A user who may write to a parent directory could replace this one.
	for above := filepath.Dir(base); ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return "", err
		}
		shared := info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0
		if shared || !(own(info) || owner(info) == 0) {
			return "", fmt.Errorf("others may replace what is below %s", above)
		}
		if above == "/" {
			break
		}
	}
	if strings.ContainsAny(directory, " :\t\n") {
		return "", fmt.Errorf("LD_PRELOAD cannot name %q", directory)
	}
	var system syscall.Statfs_t
	const noexec = 0x8 // ST_NOEXEC
	if err := syscall.Statfs(directory, &system); err != nil {
		return "", err
	} else if system.Flags&noexec != 0 {
		return "", fmt.Errorf("%s is mounted noexec", directory)
	}
	path := filepath.Join(directory, fmt.Sprintf("libsandbox-%x.so", sha256.Sum256(library)))
	if holds(path) {
		return path, nil
	}
	if err := write(directory, path); err != nil {
		return "", err
	}
	if !holds(path) {
		return "", fmt.Errorf("%s is not what was written", path)
	}
	return path, nil
}

// write creates a temporary file and renames it: a loader never maps half a library, even if many processes do this at once.
func write(directory, path string) error {
	file, err := os.CreateTemp(directory, ".new-") // O_EXCL
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(library)
	if err == nil {
		err = file.Chmod(0o500)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func holds(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || !own(info) || info.Mode() != 0o500 {
		return false
	}
	found, err := os.ReadFile(path)
	return err == nil && bytes.Equal(found, library)
}

func own(info fs.FileInfo) bool {
	return owner(info) == os.Geteuid()
}

func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
