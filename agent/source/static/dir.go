package static

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxFile is the maximum size of a file in bytes (upstream: maxConfigLength).
const maxFile = 10 << 20

// Config configures a Dir.
type Config struct {
	Path string // of the folder
	Node string
	// Complete sets the defaults of a pod and validates it, as the API does.
	Complete func(*corev1.Pod) error
	Now      func() time.Time
}

// Dir is a folder with a static pod in each file *.yaml, *.yml and *.json that is not hidden. It is not safe for
// concurrent use.
//
// Dir reports an invalid file once, until it changes. The pod that the file contained before stays until the file is
// removed.
type Dir struct {
	Config
	files map[string]*file // by name
}

// file is the content of a file when it was last read.
type file struct {
	sum      [sha256.Size]byte
	err      string
	pod      *corev1.Pod // the last valid pod
	reported string      // the last problem that Read returned
	chosen   bool        // the last Read returned its pod
}

// Problem is the reason why a file has no valid pod, or why some of its fields are ignored.
type Problem struct {
	File    string
	Err     error
	Ignored bool // the pod runs without these fields
}

// New returns a Dir that has not been read yet.
func New(config Config) *Dir { return &Dir{Config: config, files: map[string]*file{}} }

// Read reads the changed files and returns all pods in the order of their files, and the new problems. The pods are
// shared and must not be modified. A missing folder has no pods. If the folder cannot be read, Read returns an error
// and the next Read starts from the same files.
func (d *Dir) Read() (pods []*corev1.Pod, problems []Problem, err error) {
	names, err := d.names()
	if err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(d.files, func(name string, _ *file) bool { return !slices.Contains(names, name) })
	for _, name := range names {
		problems = append(problems, d.readFile(name)...)
	}
	chosen := d.choose(names)
	for _, name := range names {
		f := d.files[name]
		if f == nil || f.pod == nil {
			continue
		}
		if by := chosen[key(f.pod)]; by != name {
			problems = append(problems, f.newProblem(name, fmt.Errorf("pod %s is already defined by %s", key(f.pod), by))...)
			continue
		}
		pods = append(pods, f.pod)
		if f.err == "" {
			f.reported = ""
		}
	}
	return pods, problems, nil
}

// names returns the names of the files that may contain a pod.
func (d *Dir) names() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && Manifest(name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// Manifest reports whether a file of that name may contain a pod. It excludes temporary files of editors, which begin
// with a dot or have other extensions.
func Manifest(name string) bool {
	name = filepath.Base(name)
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// readFile reads one file and decodes it if it has changed.
func (d *Dir) readFile(name string) []Problem {
	f := d.files[name]
	if f == nil {
		f = &file{}
	}
	path := filepath.Join(d.Path, name)
	data, err := read(path)
	if errors.Is(err, errVanished) {
		delete(d.files, name)
		return nil
	}
	d.files[name] = f
	if err != nil {
		f.sum, f.err = [sha256.Size]byte{}, err.Error()
		return f.newProblem(name, err)
	}
	sum := sha256.Sum256(data)
	if sum == f.sum {
		return nil
	}
	f.sum = sum
	pod, unknown, err := d.pod(path, data)
	if err != nil {
		f.err = err.Error()
		return f.newProblem(name, err)
	}
	f.pod, f.err, f.reported = pod, "", ""
	var ignored []Problem
	for _, err := range unknown {
		ignored = append(ignored, Problem{File: name, Err: err, Ignored: true})
	}
	return ignored
}

func (d *Dir) pod(path string, data []byte) (*corev1.Pod, []error, error) {
	pod, unknown, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	if err := complete(pod, origin{node: d.Node, path: path, now: d.Now()}); err != nil {
		return nil, nil, err
	}
	return pod, unknown, d.Complete(pod)
}

// newProblem returns a problem unless it is the same as the last one.
func (f *file) newProblem(name string, err error) []Problem {
	if f.reported == err.Error() {
		return nil
	}
	f.reported = err.Error()
	return []Problem{{File: name, Err: err}}
}

// Failed returns the problems of the last Read: files without a valid pod, or with the pod of another file.
func (d *Dir) Failed() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if why := d.files[name].reported; why != "" {
			out = append(out, fmt.Sprintf("%s: %.300s", name, why))
		}
	}
	return strings.Join(out, "; ")
}

// choose decides which file defines a pod that several files contain: the file that defined it before, or else the
// first one.
func (d *Dir) choose(names []string) map[string]string {
	chosen := map[string]string{}
	for _, running := range []bool{true, false} {
		for _, name := range names {
			f := d.files[name]
			if f == nil || f.pod == nil || f.chosen != running {
				continue
			}
			if _, taken := chosen[key(f.pod)]; !taken {
				chosen[key(f.pod)] = name
			}
		}
	}
	for name, f := range d.files {
		f.chosen = f.pod != nil && chosen[key(f.pod)] == name
	}
	return chosen
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// errVanished means that the file was removed after the folder was read.
var errVanished = errors.New("file is gone")

// read returns the content of a regular file. It follows symlinks.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path) // a pipe would block Open
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return nil, errVanished
		}
		return nil, errors.New("is a dangling symlink")
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errVanished
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("is longer than %d bytes", maxFile)
	}
	return data, err
}
