package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/status"
)

// upgrade replaces the installed program by the one in a file. If that does not become healthy, the previous one
// returns, and the error says why.
func (i *installer) upgrade(ctx context.Context, file string) error {
	flags, err := i.installed()
	if err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the new program: %w", err)
	}
	old, err := os.ReadFile(i.at(i.program))
	if err != nil {
		return fmt.Errorf("cannot read the installed program: %w; run monopod install", err)
	}
	if bytes.Equal(old, content) {
		i.say("%s is installed already; nothing was to be done", file)
		return nil
	}
	to, err := i.judge(ctx, file, flags)
	if err != nil {
		return err
	}
	return i.swap(ctx, content, old, to)
}

// judge returns the version of a program. It fails if the program does not run here, or refuses the flags of the
// service.
func (i *installer) judge(ctx context.Context, file string, flags []string) (version string, err error) {
	said, err := askService(ctx, file, "version", "-o", "json")
	var versions commandline.Versions
	if err == nil {
		err = json.Unmarshal([]byte(said), &versions)
	}
	if err != nil {
		return "", fmt.Errorf("%s is no monopod for this machine (is it executable, and of the right architecture?): %w",
			file, err)
	}
	if _, err := askService(ctx, file, append([]string{"config"}, flags...)...); err != nil {
		return "", fmt.Errorf("%s refuses the flags of the service, change them in %s: %w", file, i.file, err)
	}
	return versions.Monopod.GitVersion, nil
}

// rollback is upgrade to the program before the last upgrade.
func (i *installer) rollback(ctx context.Context) error {
	if _, err := i.installed(); err != nil {
		return err
	}
	if _, err := os.Stat(i.previous()); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no previous program: %s, where upgrade keeps it, does not exist", i.previous())
	}
	return i.upgrade(ctx, i.previous())
}

// swap takes a snapshot, puts the new program in its place, and returns to the old one if the new one is not healthy.
func (i *installer) swap(ctx context.Context, content, old []byte, to string) error {
	from, snapshot, err := i.save(ctx)
	if err != nil {
		return err
	}
	former, _ := os.ReadFile(i.previous()) // of the last upgrade, if there was one
	if _, err := i.put(i.program+".previous", old, 0o755); err != nil {
		return err
	}
	if _, err := i.put(i.program, content, 0o755); err != nil {
		return err
	}
	i.say("upgrading from %s to %s", from, to)
	failed := i.start(ctx, to)
	if failed == nil {
		i.say("monopod %s runs; to go back: monopod rollback", to)
		return nil
	}
	i.say("%v; returning to %s", failed, from)
	ctx = context.WithoutCancel(ctx) // Ctrl-C ends the attempt, and not the return
	if _, err := i.put(i.program, old, 0o755); err != nil {
		return errors.Join(failed, err)
	}
	if err := i.keep(former); err != nil {
		return errors.Join(failed, err)
	}
	if err := i.comeBack(ctx, snapshot); err != nil {
		return fmt.Errorf("the new program failed (%w), and the previous one does not run either: %w; look at its log: %s",
			failed, err, i.log)
	}
	return fmt.Errorf("%s does not work here, and %s runs again: %w; look at the log: %s", to, from, failed, i.log)
}

// keep restores the program that rollback returns to; nil: there was none.
func (i *installer) keep(former []byte) error {
	if former == nil {
		return os.Remove(i.previous())
	}
	_, err := i.put(i.program+".previous", former, 0o755)
	return err
}

// comeBack starts the previous program. If that does not run, the new one may have changed the state: it starts with
// the snapshot then.
func (i *installer) comeBack(ctx context.Context, snapshot string) error {
	i.timeout = max(i.timeout, installTimeout)
	err := i.start(ctx, "")
	if err == nil || snapshot == "" {
		return err
	}
	i.say("%v; restoring the snapshot %s", err, snapshot)
	if err := runProgram(ctx, i.stop); err != nil {
		return err
	}
	if _, err := askService(ctx, i.at(i.program), "snapshot", "restore", snapshot, "--data-dir",
		i.at(i.dataDir)); err != nil {
		return err
	}
	return i.start(ctx, "")
}

// save returns the version that runs, and the name of a new snapshot; none if the state is in etcd.
func (i *installer) save(ctx context.Context) (version, snapshot string, err error) {
	var about status.Process
	err = local.At(i.at(i.dataDir)).JSON(ctx, status.Path, &about)
	switch {
	case err != nil && runProgram(ctx, i.active) == nil:
		return "", "", fmt.Errorf("cannot ask the monopod that runs: %w", err)
	case err != nil: // it is stopped, or broken: what can be saved is the file
		version, _ = askService(ctx, i.at(i.program), "version") // a broken one may not even say that
	case about.State.Kind == "etcd":
		return about.Version, "", nil
	default:
		version = about.Version
	}
	snapshot, err = askService(ctx, i.at(i.program), "snapshot", "save", "--data-dir", i.at(i.dataDir))
	if err != nil && about.PID == 0 {
		i.say("no snapshot was made: %v", err)
		return version, "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot upgrade without a snapshot: %w", err)
	}
	i.say("saved the snapshot %s", snapshot)
	return version, snapshot, nil
}
