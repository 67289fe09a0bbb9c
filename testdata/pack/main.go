// Command pack makes an OCI image archive from static programs and files.
//
//	go run ./testdata/pack -ref monopod.local/web:1 -out web.tar -port 8080/tcp bin/web
//	go run ./testdata/pack -ref monopod.local/box:1 -out box.tar -add etc/motd=motd.txt -link bin/sh=/box bin/box
//
// The one argument becomes /<its base name> and, unless -entrypoint says
// otherwise, the entry point.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"monopod/agent/image"
)

type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var img image.Image
	var env, ports, files, links, entrypoint, cmd list
	flags := flag.NewFlagSet("pack", flag.ContinueOnError)
	out := flags.String("out", "", "the archive to write")
	flags.StringVar(&img.Ref, "ref", "", "the image's name")
	flags.StringVar(&img.User, "user", "", "uid[:gid]")
	flags.StringVar(&img.Arch, "arch", "", "GOARCH of the program; this machine's if empty")
	flags.StringVar(&img.WorkingDir, "workdir", "", "where the program starts")
	flags.Var(&env, "env", "NAME=value, repeatable")
	flags.Var(&ports, "port", "8080/tcp, repeatable")
	flags.Var(&entrypoint, "entrypoint", "one word of the entry point, repeatable")
	flags.Var(&cmd, "cmd", "one word of the default arguments, repeatable")
	flags.Var(&files, "add", "path=file, repeatable")
	flags.Var(&links, "link", "path=target of a symlink, repeatable")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || flags.NArg() != 1 {
		return errors.New("want -out FILE and one program")
	}
	img.Env, img.ExposedPorts, img.Entrypoint, img.Cmd = env, ports, entrypoint, cmd
	if err := addFiles(&img, flags.Arg(0), files, links); err != nil {
		return err
	}
	return write(*out, img)
}

func addFiles(img *image.Image, program string, files, links list) error {
	at := "/" + filepath.Base(program)
	if len(img.Entrypoint) == 0 {
		img.Entrypoint = []string{at}
	}
	for _, entry := range append(list{at + "=" + program}, files...) {
		name, from, _ := strings.Cut(entry, "=")
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		img.Files = append(img.Files, image.File{Path: name, Mode: info.Mode().Perm(), Data: data})
	}
	for _, entry := range links {
		name, target, _ := strings.Cut(entry, "=")
		img.Files = append(img.Files, image.File{Path: name, Mode: fs.ModeSymlink | 0o777, Data: []byte(target)})
	}
	return nil
}

func write(path string, img image.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := image.Archive(f, img); err != nil {
		f.Close()
		os.Remove(path)
		return err
	}
	return f.Close()
}
