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

// maxFile is how long a file may be (upstream: maxConfigLength).
const maxFile = 10 << 20

// Config says how a Dir reads.
type Config struct {
	Path string // of the folder
	Node string
	// Complete fills in the defaults of a pod and validates it, as the API would.
	Complete func(*corev1.Pod) error
	Now      func() time.Time
}

// Dir is a folder of static pods, one a file: *.yaml, *.yml and *.json, hidden
// ones left out. It is for one goroutine.
//
// A file that is broken is told of once, until it changes. The pod that it held
// before, if any, stays; it goes with the file.
type Dir struct {
	Config
	files map[string]*file // by name
}

// file is what one file held when it was last read.
type file struct {
	sum  [sha256.Size]byte
	err  string
	pod  *corev1.Pod // the last good one
	told string      // the last problem that Read returned
	// chosen: its pod is one of those that Read last returned.
	chosen bool
}

// Problem is why a file gives no pod, or not the one that its author means.
type Problem struct {
	File string
	Err  error
	// Ignored: the pod runs, some of what the file says has no meaning.
	Ignored bool
}

// New makes a Dir that has read nothing.
func New(config Config) *Dir { return &Dir{Config: config, files: map[string]*file{}} }

// Read looks at every file and returns all pods in the order of their files, and
// what is newly wrong. The pods are the reader's to share: nobody changes them.
// A folder that is not there holds nothing; one that cannot be read is an error
// and leaves all as it was.
func (d *Dir) Read() (pods []*corev1.Pod, problems []Problem, err error) {
	names, err := d.names()
	if err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(d.files, func(name string, _ *file) bool { return !slices.Contains(names, name) })
	for _, name := range names {
		problems = append(problems, d.look(name)...)
	}
	chosen := d.choose(names)
	for _, name := range names {
		f := d.files[name]
		if f == nil || f.pod == nil {
			continue
		}
		if by := chosen[key(f.pod)]; by != name {
			problems = append(problems, f.tell(name, fmt.Errorf("pod %s is already defined by %s", key(f.pod), by))...)
			continue
		}
		pods = append(pods, f.pod)
		if f.err == "" {
			f.told = ""
		}
	}
	return pods, problems, nil
}

// names are the files that may hold a pod.
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

// Manifest says whether a file of that name may hold a pod. Editors' and copiers'
// temporary files begin with a dot or end otherwise.
func Manifest(name string) bool {
	name = filepath.Base(name)
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// look reads one file and, if it is another than before, what it says.
func (d *Dir) look(name string) []Problem {
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
		return f.tell(name, err)
	}
	sum := sha256.Sum256(data)
	if sum == f.sum {
		return nil
	}
	f.sum = sum
	pod, unknown, err := d.pod(path, data)
	if err != nil {
		f.err = err.Error()
		return f.tell(name, err)
	}
	f.pod, f.err, f.told = pod, "", ""
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
	if err := settle(pod, origin{node: d.Node, path: path, now: d.Now()}); err != nil {
		return nil, nil, err
	}
	return pod, unknown, d.Complete(pod)
}

// tell is a problem, unless it was the last one told.
func (f *file) tell(name string, err error) []Problem {
	if f.told == err.Error() {
		return nil
	}
	f.told = err.Error()
	return []Problem{{File: name, Err: err}}
}

// choose says which file defines each pod: the one whose pod runs already, else
// the first.
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

// errVanished: the file was there a moment ago.
var errVanished = errors.New("file is gone")

// read is the whole of a regular file, or of one that a link leads to.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path) // a pipe would keep Open waiting
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return nil, errVanished
		}
		return nil, errors.New("is a link that leads nowhere")
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
