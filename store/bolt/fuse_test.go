package bolt_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that tells what it is asked to do: a file system with one file, which
// notes each write and each fsync in a journal before it answers, and fails them
// when it is told to. It is another process, this test binary once more: a
// program that serves a file to itself can wait for itself when it maps it. The
// protocol is that of linux/fuse.h, version 7.31.

// fuseMount is the environment variable that makes this test binary that disk.
const fuseMount = "MONOPOD_TEST_FUSE_MOUNT"

const diskFile = "disk"

// Kinds of entries in the journal. Each is kind, offset and length as three
// 64-bit numbers, and the bytes of a write.
const (
	journalWrite = iota
	journalSync
	journalTruncate
)

type fuseDisk struct {
	dev     *os.File
	data    []byte
	journal *os.File
	fault   atomic.Int32 // errno of writes; negative: of fsyncs
}

// fuseChild serves the disk until it is unmounted. The file begins as what the
// file "initial" beside the mount point is. Each line of in is a fault to go by
// from then on, and is answered with a line.
func fuseChild(mount string, in io.Reader, out io.Writer) error {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	d := &fuseDisk{dev: dev}
	if d.data, err = os.ReadFile(filepath.Join(mount, "..", "initial")); err != nil {
		return err
	}
	if d.journal, err = os.Create(filepath.Join(mount, "..", "journal")); err != nil {
		return err
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())
	if err := unix.Mount("monopod-test", mount, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	go func() {
		fmt.Fprintln(out, "ready")
		for lines := bufio.NewScanner(in); lines.Scan(); fmt.Fprintln(out, "ok") {
			var n int32
			fmt.Sscan(lines.Text(), &n)
			d.fault.Store(n)
		}
	}()
	return d.serve()
}

func (d *fuseDisk) serve() error {
	buf := make([]byte, 1<<20)
	for {
		n, err := unix.Read(int(d.dev.Fd()), buf)
		switch {
		case errors.Is(err, unix.ENODEV):
			return nil // unmounted
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT):
			continue
		case err != nil:
			return err
		}
		op, unique, node := native.Uint32(buf[4:]), native.Uint64(buf[8:]), native.Uint64(buf[16:])
		if op == 2 || op == 42 || op == 36 { // FORGET, BATCH_FORGET, INTERRUPT: no answer
			continue
		}
		answer, errno := d.answer(op, node, buf[40:n])
		head := make([]byte, 16, 16+len(answer))
		native.PutUint32(head, uint32(16+len(answer)))
		native.PutUint32(head[4:], uint32(-int32(errno)))
		native.PutUint64(head[8:], unique)
		if _, err := unix.Write(int(d.dev.Fd()), append(head, answer...)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}

var native = binary.NativeEndian

func (d *fuseDisk) answer(op uint32, node uint64, in []byte) ([]byte, unix.Errno) {
	switch op {
	case 26: // INIT
		out := make([]byte, 64)
		for i, v := range []uint32{7, 31, 1 << 17, 0, 0, 1 << 17} { // major, minor, readahead, flags, background, max_write
			native.PutUint32(out[4*i:], v)
		}
		native.PutUint32(out[24:], 1) // time_gran
		return out, 0
	case 1: // LOOKUP
		if string(bytes.TrimRight(in, "\x00")) != diskFile {
			return nil, unix.ENOENT
		}
		return append(words(2, 0, 3600, 3600, 0), d.attr(2)...), 0
	case 3, 4: // GETATTR, SETATTR
		if op == 4 && native.Uint32(in)&(1<<3) != 0 {
			d.truncate(native.Uint64(in[16:]))
		}
		return append(words(3600, 0), d.attr(node)...), 0
	case 14, 27: // OPEN, OPENDIR
		return words(0, 0), 0
	case 15: // READ
		from := min(native.Uint64(in[8:]), uint64(len(d.data)))
		return d.data[from:min(from+uint64(native.Uint32(in[16:])), uint64(len(d.data)))], 0
	case 16: // WRITE
		return d.write(native.Uint64(in[8:]), in[40:][:native.Uint32(in[16:])])
	case 20: // FSYNC
		if n := d.fault.Load(); n < 0 {
			return nil, unix.Errno(-n)
		}
		d.note(journalSync, 0, nil)
		return nil, 0
	case 17: // STATFS
		return make([]byte, 80), 0
	case 18, 25, 29, 34, 38: // RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func words(all ...uint64) []byte {
	var out []byte
	for _, w := range all {
		out = native.AppendUint64(out, w)
	}
	return out
}

func (d *fuseDisk) attr(node uint64) []byte {
	out := words(node, uint64(len(d.data)), uint64(len(d.data)/512), 0, 0, 0)
	mode := uint32(unix.S_IFREG | 0o600)
	if node == 1 {
		mode = unix.S_IFDIR | 0o700
	}
	for _, v := range []uint32{0, 0, 0, mode, 1, 0, 0, 0, 4096, 0} { // times, mode, links, uid, gid, rdev, block size, flags
		out = native.AppendUint32(out, v)
	}
	return out
}

func (d *fuseDisk) truncate(size uint64) {
	d.note(journalTruncate, size, nil)
	if size <= uint64(len(d.data)) {
		d.data = d.data[:size]
		return
	}
	d.data = append(d.data, make([]byte, size-uint64(len(d.data)))...)
}

func (d *fuseDisk) write(at uint64, data []byte) ([]byte, unix.Errno) {
	if n := d.fault.Load(); n > 0 {
		return nil, unix.Errno(n)
	}
	if end := at + uint64(len(data)); end > uint64(len(d.data)) {
		d.data = append(d.data, make([]byte, end-uint64(len(d.data)))...)
	}
	copy(d.data[at:], data)
	d.note(journalWrite, at, data)
	return words(uint64(len(data))), 0
}

func (d *fuseDisk) note(kind, at uint64, data []byte) {
	d.journal.Write(append(words(kind, at, uint64(len(data))), data...))
}

// disk is the other side: the mounted file and the journal.
type disk struct {
	file    string
	journal string
	control io.Writer
	said    *bufio.Reader
}

// mountDisk mounts a disk whose file begins as initial.
func mountDisk(t *testing.T, initial []byte) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: mounting a file system of our own needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("left out: the kernel has no FUSE: %v", err)
	}
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	if err := errors.Join(os.Mkdir(mount, 0o700), os.WriteFile(filepath.Join(dir, "initial"), initial, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fuseMount+"="+mount)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Unmount(mount, unix.MNT_DETACH)
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	d := &disk{file: filepath.Join(mount, diskFile), journal: filepath.Join(dir, "journal"), control: in, said: bufio.NewReader(out)}
	if line, err := d.said.ReadString('\n'); err != nil || line != "ready\n" {
		cmd.Wait()
		t.Skipf("left out: no disk of our own can be mounted here: %s", complaint.String())
	}
	return d
}

// fail makes writes fail from now on; negative: fsyncs; 0: nothing.
func (d *disk) fail(t *testing.T, errno int) {
	t.Helper()
	fmt.Fprintln(d.control, errno)
	if line, err := d.said.ReadString('\n'); err != nil || line != "ok\n" {
		t.Fatalf("the disk said %q, %v", line, err)
	}
}

// openFile opens the disk's file in the place of state.db.
func (d *disk) openFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	if filepath.Base(name) == "state.db" {
		name = d.file
	}
	return os.OpenFile(name, flag, perm)
}
