package cmd

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/status"
)

// upgrade replaces the installed program by the one in a file. If that does not become healthy, upgrade restores the
// previous one and returns the reason.
func (i *installer) upgrade(ctx context.Context, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	return i.upgradeTo(ctx, file, file)
}

// upgradeTo is upgrade with the name by which the user knows the program.
func (i *installer) upgradeTo(ctx context.Context, file, name string) error {
	flags, err := i.installed()
	if err != nil {
		return err
	}
	if err := checkProcessor(file, name); err != nil {
		return err
	}
	same, err := sameContent(i.at(i.program), file)
	if err != nil {
		return fmt.Errorf("cannot compare the installed program with the new one: %w", err)
	}
	if same {
		i.say("%s is already installed; nothing to do", name)
		return nil
	}
	to, err := i.checkProgram(ctx, file, name, flags)
	if err != nil {
		return err
	}
	return i.replaceProgram(ctx, file, to)
}

// upgradeFrom is upgrade with the program at an address, which it downloads to the data folder.
func (i *installer) upgradeFrom(ctx context.Context, address string, d download) error {
	if _, err := i.installed(); err != nil {
		return err
	}
	file := filepath.Join(i.at(i.dataDir), "upgrade.download")
	defer os.Remove(file)
	from, signer, err := d.fetch(ctx, address, file)
	if err != nil {
		return err
	}
	i.say("downloaded %s%s", from, signer)
	return i.upgradeTo(ctx, file, from)
}

// machines are the processors of Monopod's programs, by Go's name.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV,
}

// checkProcessor is checkELF of a file, with a name for errors.
func checkProcessor(file, name string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("cannot read the new program: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the new program: %w", err)
	}
	if err := checkELF(f, info.Size(), runtime.GOARCH); err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	return nil
}

// checkELF refuses a program for another processor, which an emulator might run, and one whose end is missing, which
// might run until the first access to it. Other files are left to the kernel.
func checkELF(program io.ReaderAt, size int64, arch string) error {
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := program.ReadAt(magic, 0); err != nil || string(magic) != elf.ELFMAG {
		return nil
	}
	f, err := elf.NewFile(program)
	if err != nil {
		return fmt.Errorf("is not a complete program: %w", err)
	}
	if want, known := machines[arch]; known && f.Machine != want {
		return fmt.Errorf("is a program for another processor: %v, this machine's is %v", f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Off+p.Filesz > uint64(size) {
			return fmt.Errorf("is not a complete program: it ends after %d bytes", size)
		}
	}
	return nil
}

// versionOf returns the version of a program.
func versionOf(ctx context.Context, program string) (string, error) {
	out, err := runMonopod(ctx, program, "version", "-o", "json")
	var versions commandline.Versions
	if err == nil {
		err = json.Unmarshal([]byte(out), &versions)
	}
	return versions.Monopod.GitVersion, err
}

// checkProgram returns the version of a program with a name for errors. It fails if the program does not run here, or
// refuses the flags of the service.
func (i *installer) checkProgram(ctx context.Context, file, name string, flags []string) (version string, err error) {
	version, err = versionOf(ctx, file)
	if err != nil {
		return "", fmt.Errorf("%s is not a monopod program for this machine "+
			"(is it executable, and of the right architecture?): %w", name, err)
	}
	if err := i.checkFlags(ctx, file, flags); err != nil {
		return "", fmt.Errorf("%s refuses the flags of the service, change them in %s: %w", name, i.file, err)
	}
	return version, nil
}

// rollback upgrades to the program before the last upgrade.
func (i *installer) rollback(ctx context.Context) error {
	if _, err := i.installed(); err != nil {
		return err
	}
	if _, err := os.Stat(i.previous()); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no previous program: %s, where upgrade keeps it, does not exist", i.previous())
	}
	return i.upgrade(ctx, i.previous())
}

// replaceProgram takes a snapshot, installs the new program, and restores the old one if the new one is not healthy.
func (i *installer) replaceProgram(ctx context.Context, file, to string) error {
	from, snapshot, err := i.saveSnapshot(ctx)
	if err != nil {
		return err
	}
	program := i.at(i.program)
	next := program + ".next" // a copy, because file may be the previous program, which moves away
	defer os.Remove(next)     // fails after the rename
	if err := copyProgram(file, next); err != nil {
		return err
	}
	if err := os.Rename(i.previous(), i.former()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if os.Link(program, i.previous()) != nil { // some file systems have no hard links
		if err := copyProgram(program, i.previous()); err != nil {
			return err
		}
	}
	if err := os.Rename(next, program); err != nil {
		return err
	}
	i.say("upgrading from %s to %s", from, to)
	failed := i.start(ctx, to)
	if failed == nil {
		_ = os.Remove(i.former()) // there is none after the first upgrade
		i.say("monopod %s runs; to go back: monopod rollback", to)
		return nil
	}
	i.say("%v; returning to %s", failed, from)
	ctx = context.WithoutCancel(ctx) // Ctrl-C ends the upgrade, but not the restoration
	if err := os.Rename(i.previous(), program); err != nil {
		return errors.Join(failed, err)
	}
	if err := os.Rename(i.former(), i.previous()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(failed, err)
	}
	if err := i.startPrevious(ctx, snapshot); err != nil {
		return fmt.Errorf("the new program failed (%w), and the previous one does not run either: %w; look at its log: %s",
			failed, err, i.log)
	}
	return fmt.Errorf("%s does not work here, and %s runs again: %w; look at the log: %s", to, from, failed, i.log)
}

// startPrevious starts the previous program. If it does not become healthy, the new one may have changed the state:
// startPrevious then restores the snapshot.
func (i *installer) startPrevious(ctx context.Context, snapshot string) error {
	i.timeout = max(i.timeout, installTimeout)
	err := i.start(ctx, "")
	if err == nil || snapshot == "" {
		return err
	}
	i.say("%v; restoring the snapshot %s", err, snapshot)
	if err := runProgram(ctx, i.stop); err != nil {
		return err
	}
	if _, err := runMonopod(ctx, i.at(i.program), "snapshot", "restore", snapshot, "--data-dir",
		i.at(i.dataDir)); err != nil {
		return err
	}
	return i.start(ctx, "")
}

// saveSnapshot returns the running version and the name of a new snapshot, which is empty if the state is in etcd.
func (i *installer) saveSnapshot(ctx context.Context) (version, snapshot string, err error) {
	if i.verb == joinVerb { // its state is on the servers
		version, err = versionOf(ctx, i.at(i.program))
		return version, "", err
	}
	var about status.Process
	err = local.At(i.at(i.dataDir)).JSON(ctx, status.Path, &about)
	switch {
	case err != nil && runProgram(ctx, i.active) == nil:
		return "", "", fmt.Errorf("cannot ask the monopod that runs: %w", err)
	case err != nil: // monopod does not run, or fails: only its file can be saved
		version, _ = versionOf(ctx, i.at(i.program)) // empty if even that fails
	case about.State.Kind == "etcd":
		return about.Version, "", nil
	default:
		version = about.Version
	}
	snapshot, err = runMonopod(ctx, i.at(i.program), "snapshot", "save", "--data-dir", i.at(i.dataDir))
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
