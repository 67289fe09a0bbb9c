package bolt_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that records its operations: a file system in memory that writes each change and each fsync to a
// journal before it answers, and fails them on request. It runs in another process, this test binary, because a
// program that serves a file to itself can deadlock when it maps it. The protocol is that of linux/fuse.h,
// version 7.31.

// fuseMount is the environment variable that makes this test binary that disk.
const fuseMount = "MONOPOD_TEST_FUSE_MOUNT"

// rootNode is the number of the root folder.
const rootNode = 1

// fuseNode is a file, or a folder if it has entries.
type fuseNode struct {
	data    []byte
	entries map[string]uint64
}

type fuseDisk struct {
	dev     *os.File
	nodes   map[uint64]*fuseNode // by number, never reused
	journal *os.File
	fault   atomic.Int32 // errno of writes; negative: of fsyncs
}

// fuseChild serves the disk until it is unmounted. It starts with the content of the folder "initial" next to
// the mount point. Each line of in sets a fault, and is answered with a line.
func fuseChild(mount string, in io.Reader, out io.Writer) error {
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	d := &fuseDisk{dev: dev, nodes: map[uint64]*fuseNode{rootNode: {entries: map[string]uint64{}}}}
	if d.journal, err = os.Create(filepath.Join(mount, "..", "journal")); err != nil {
		return err
	}
	if err := d.load(os.DirFS(filepath.Join(mount, "..", "initial"))); err != nil {
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

// load loads the content of from, as synced.
func (d *fuseDisk) load(from fs.FS) error {
	folders := map[string]uint64{".": rootNode}
	err := fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		dir, name := folders[filepath.Dir(path)], filepath.Base(path)
		if e.IsDir() {
			folders[path] = d.create(journalMkdir, dir, name)
			return nil
		}
		data, err := fs.ReadFile(from, path)
		node := d.create(journalCreate, dir, name)
		d.write(node, 0, data)
		d.note(journalSync, node, 0, nil)
		return err
	})
	for _, dir := range folders {
		d.note(journalSync, dir, 0, nil)
	}
	return err
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
	case 3, 4: // GETATTR, SETATTR
		if op == 4 && native.Uint32(in)&(1<<3) != 0 {
			d.truncate(node, native.Uint64(in[16:]))
		}
		return append(words(3600, 0), d.attr(node)...), 0
	case 14, 27: // OPEN, OPENDIR
		return words(0, 0), 0
	case 15: // READ
		data := d.nodes[node].data
		from := min(native.Uint64(in[8:]), uint64(len(data)))
		return data[from:min(from+uint64(native.Uint32(in[16:])), uint64(len(data)))], 0
	case 16: // WRITE
		if n := d.fault.Load(); n > 0 {
			return nil, unix.Errno(n)
		}
		data := in[40:][:native.Uint32(in[16:])]
		d.write(node, native.Uint64(in[8:]), data)
		return words(uint64(len(data))), 0
	case 20, 30: // FSYNC, FSYNCDIR
		if n := d.fault.Load(); n < 0 {
			return nil, unix.Errno(-n)
		}
		d.note(journalSync, node, 0, nil)
		return nil, 0
	case 17: // STATFS
		return make([]byte, 80), 0
	case 18, 25, 29, 34, 38: // RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
		return nil, 0
	}
	return d.answerFolder(op, node, in)
}

// answerFolder answers requests about the entries of a folder.
func (d *fuseDisk) answerFolder(op uint32, dir uint64, in []byte) ([]byte, unix.Errno) {
	switch op {
	case 1: // LOOKUP
		return d.entry(dir, text(in))
	case 8, 9: // MKNOD, MKDIR
		kind, skip := uint64(journalCreate), 16
		if op == 9 {
			kind, skip = journalMkdir, 8
		}
		name := text(in[skip:])
		d.create(kind, dir, name)
		return d.entry(dir, name)
	case 10: // UNLINK
		name := text(in)
		delete(d.nodes[dir].entries, name)
		d.note(journalUnlink, dir, 0, []byte(name))
		return nil, 0
	case 12: // RENAME
		from, to, _ := strings.Cut(string(in[8:]), "\x00")
		if native.Uint64(in) != dir {
			return nil, unix.EXDEV
		}
		return nil, d.rename(dir, from, text([]byte(to)))
	case 13: // LINK
		name := text(in[8:])
		d.link(journalCreate, dir, name, native.Uint64(in))
		return d.entry(dir, name)
	case 28: // READDIR
		return d.list(dir, native.Uint64(in[8:]), int(native.Uint32(in[16:]))), 0
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

// text returns the part before a zero byte.
func text(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}

func (d *fuseDisk) entry(dir uint64, name string) ([]byte, unix.Errno) {
	node, ok := d.nodes[dir].entries[name]
	if !ok {
		return nil, unix.ENOENT
	}
	return append(words(node, 0, 3600, 3600, 0), d.attr(node)...), 0
}

func (d *fuseDisk) attr(node uint64) []byte {
	n := d.nodes[node]
	out := words(node, uint64(len(n.data)), uint64(len(n.data)/512), 0, 0, 0)
	mode := uint32(unix.S_IFREG | 0o600)
	if n.entries != nil {
		mode = unix.S_IFDIR | 0o700
	}
	// times, mode, links, uid, gid, rdev, block size, flags
	for _, v := range []uint32{0, 0, 0, mode, 1, 0, 0, 0, 4096, 0} {
		out = native.AppendUint32(out, v)
	}
	return out
}

// list returns the entries of a folder from an offset on, in at most size bytes.
func (d *fuseDisk) list(dir, from uint64, size int) (out []byte) {
	names := slices.Sorted(maps.Keys(d.nodes[dir].entries))
	for i := from; i < uint64(len(names)); i++ {
		name := names[i]
		entry := words(d.nodes[dir].entries[name], i+1)
		entry = native.AppendUint32(entry, uint32(len(name)))
		entry = native.AppendUint32(entry, 0) // type: unknown
		entry = append(append(entry, name...), make([]byte, -len(name)&7)...)
		if len(out)+len(entry) > size {
			break
		}
		out = append(out, entry...)
	}
	return out
}

func (d *fuseDisk) create(kind, dir uint64, name string) uint64 {
	node := uint64(len(d.nodes) + rootNode)
	d.nodes[node] = &fuseNode{}
	if kind == journalMkdir {
		d.nodes[node].entries = map[string]uint64{}
	}
	d.link(kind, dir, name, node)
	return node
}

func (d *fuseDisk) link(kind, dir uint64, name string, node uint64) {
	d.nodes[dir].entries[name] = node
	d.note(kind, dir, node, []byte(name))
}

func (d *fuseDisk) rename(dir uint64, from, to string) unix.Errno {
	entries := d.nodes[dir].entries
	entries[to] = entries[from]
	delete(entries, from)
	d.note(journalRename, dir, entries[to], []byte(from+"\x00"+to))
	return 0
}

func (d *fuseDisk) truncate(node, size uint64) {
	n := d.nodes[node]
	d.note(journalTruncate, node, size, nil)
	if size <= uint64(len(n.data)) {
		n.data = n.data[:size]
		return
	}
	n.data = append(n.data, make([]byte, size-uint64(len(n.data)))...)
}

func (d *fuseDisk) write(node, at uint64, data []byte) {
	n := d.nodes[node]
	if end := at + uint64(len(data)); end > uint64(len(n.data)) {
		n.data = append(n.data, make([]byte, end-uint64(len(n.data)))...)
	}
	copy(n.data[at:], data)
	d.note(journalWrite, node, at, data)
}

func (d *fuseDisk) note(kind, node, at uint64, data []byte) {
	d.journal.Write(append(words(kind, node, at, uint64(len(data))), data...))
}

// disk is the mounted folder and the journal.
type disk struct {
	dir     string
	journal string
	control io.Writer
	said    *bufio.Reader
}

// mountDisk mounts a disk that begins as initial, a folder; "": empty.
func mountDisk(t *testing.T, initial string) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting a FUSE file system needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("skipped: the kernel has no FUSE: %v", err)
	}
	dir := t.TempDir()
	mount, begin := filepath.Join(dir, "mount"), filepath.Join(dir, "initial")
	err := errors.Join(os.Mkdir(mount, 0o700), os.Mkdir(begin, 0o700))
	if initial != "" {
		err = errors.Join(err, os.CopyFS(begin, os.DirFS(initial)))
	}
	if err != nil {
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
	d := &disk{dir: mount, journal: filepath.Join(dir, "journal"), control: in, said: bufio.NewReader(out)}
	if line, err := d.said.ReadString('\n'); err != nil || line != "ready\n" {
		cmd.Wait()
		t.Skipf("skipped: no FUSE file system can be mounted here: %s", complaint.String())
	}
	return d
}

// fail makes writes fail from now on; negative: fsyncs; 0: nothing.
func (d *disk) fail(t *testing.T, errno int) {
	t.Helper()
	fmt.Fprintln(d.control, errno)
	if line, err := d.said.ReadString('\n'); err != nil || line != "ok\n" {
		t.Fatalf("the disk replied %q, %v", line, err)
	}
}
