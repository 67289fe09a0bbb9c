// Command images writes an archive of replacements for the images of Kubernetes' end-to-end tests, for a machine
// without access to a registry: all programs of the tests in one Debian root file system, and BusyBox.
//
// With arguments NAME=PROGRAM it writes images of these programs instead, each with the root file system, if any.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"monopod/agent/runtime/oci"
)

// The names and tags are those of test/utils/image/manifest.go in Kubernetes 1.37.
const (
	repository = "registry.k8s.io/"
	tests      = repository + "e2e-test-images/"
)

func main() {
	rootfs := flag.String("rootfs", "", "Folder of a Debian root file system with the programs of the tests.")
	sources := flag.String("sources", "", "Folder of the tests' images in the module k8s.io/kubernetes.")
	flag.Parse()
	images, err := programs(*rootfs, flag.Args())
	if flag.NArg() == 0 {
		images, err = all(*rootfs, *sources)
	}
	if err == nil {
		err = oci.Archive(os.Stdout, images...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// env is the environment of every image.
var env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// programs returns an image for each NAME=PROGRAM.
func programs(rootfs string, args []string) ([]oci.Image, error) {
	base := []oci.File{{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777}}
	if rootfs != "" {
		var err error
		if base, err = folder(rootfs); err != nil {
			return nil, err
		}
	}
	var images []oci.Image
	for _, arg := range args {
		name, program, _ := strings.Cut(arg, "=")
		data, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		entry := "/" + filepath.Base(program)
		files := append(slices.Clone(base), oci.File{Path: entry, Data: data})
		images = append(images, oci.Image{Ref: name, Files: files, Entrypoint: []string{entry}, Env: env})
	}
	return images, nil
}

// all returns the images of the tests.
func all(rootfs, sources string) ([]oci.Image, error) {
	debian, err := folder(rootfs)
	if err != nil {
		return nil, err
	}
	busybox, err := busyBox()
	if err != nil {
		return nil, err
	}
	var images []oci.Image
	add := func(files []oci.File, name string, img oci.Image) {
		img.Ref, img.Files, img.Env = name, files, env
		images = append(images, img)
	}
	agnhost := func(args ...string) oci.Image { return oci.Image{Entrypoint: []string{"/agnhost"}, Cmd: args} }
	for _, tag := range []string{"2.66.1", "2.55", "2.6"} {
		add(debian, tests+"agnhost:"+tag, agnhost("pause"))
	}
	add(debian, repository+"pause:3.10.2", agnhost("pause"))
	for _, kind := range []string{"kitten", "nautilus"} {
		data, err := os.ReadFile(filepath.Join(sources, kind, "html/data.json"))
		if err != nil {
			return nil, err
		}
		files := append(slices.Clone(busybox), oci.File{Path: "data.json", Mode: 0o644, Data: data},
			oci.File{Path: "etc/os-release", Mode: 0o644, Data: []byte("NAME=\"Alpine Linux\"\n")}) // a test expects it
		add(files, tests+kind+":1.8", oci.Image{Cmd: []string{"httpd", "-f", "-h", "/"}})
	}
	for _, version := range []string{"1.27.0-2", "1.28.0-2"} {
		add(debian, tests+"nginx:"+version, oci.Image{Cmd: []string{"nginx", "-g", "daemon off;"}})
	}
	add(debian, tests+"nonewprivs:1.4", oci.Image{Cmd: []string{"nnp"}})
	add(debian, tests+"perl:5.26", oci.Image{Cmd: []string{"perl"}})
	add(debian, tests+"glibc-dns-testing:2.1.1", oci.Image{Cmd: []string{"bash"}})
	add(debian, tests+"ipc-utils:1.4", oci.Image{Cmd: []string{"bash"}})
	add(debian, tests+"sample-apiserver:1.29.2", oci.Image{Entrypoint: []string{"/kube-sample-apiserver"}})
	add(debian, repository+"etcd:3.7.0-0", oci.Image{Cmd: []string{"etcd"}})
	for _, tag := range []string{"1.37.0-2", "1.36.1-1"} { // the mock CSI driver uses the second one
		add(busybox, tests+"busybox:"+tag, oci.Image{Cmd: []string{"sh"}})
	}
	add(busybox, tests+"nonroot:1.5", oci.Image{User: "1234", Cmd: []string{"sh"}})
	return images, nil
}

// folder returns the files of a root file system, without documentation and the package manager's data.
func folder(root string) ([]oci.File, error) {
	var files []oci.File
	skip := map[string]bool{"var/cache/apt": true, "var/lib/apt": true, "usr/share/doc": true, "usr/share/man": true,
		"usr/share/locale": true, "dev": true, "proc": true, "sys": true}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if skip[name] {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := oci.File{Path: name, Mode: info.Mode()}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			f.UID, f.GID = int(owner.Uid), int(owner.Gid)
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			f.Data = []byte(target)
		case info.Mode().IsRegular():
			if f.Data, err = os.ReadFile(path); err != nil {
				return err
			}
		case !info.IsDir():
			return nil
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// busyBox returns the files of a BusyBox image. Its shell is a static Bash: Debian's BusyBox shell drops environment
// variables whose names are not valid in a shell, but tests expect them.
func busyBox() ([]oci.File, error) {
	program, err := os.ReadFile("/bin/busybox")
	shell, err2 := os.ReadFile("/bin/bash-static")
	names, err3 := exec.Command("/bin/busybox", "--list").Output()
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}

	files := []oci.File{{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777}, {Path: "home", Mode: fs.ModeDir | 0o755},
		{Path: "root", Mode: fs.ModeDir | 0o700},
		{Path: "bin/busybox", Data: program}, {Path: "bin/sh", Data: shell},
		{Path: "etc/passwd", Mode: 0o644,
			Data: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n")},
		{Path: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\nnobody:x:65534:\n")}}
	for name := range bytes.FieldsSeq(names) {
		if n := string(name); n != "busybox" && n != "sh" {
			files = append(files, oci.File{Path: "bin/" + n, Mode: fs.ModeSymlink | 0o777, Data: []byte("busybox")})
		}
	}
	return files, nil
}
