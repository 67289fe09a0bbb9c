// Package program is the program in Monopod's sample image: a web server that can simulate
// failures, and tools that an image without a shell lacks.
//
//	web [-listen ADDR] [-tls] [-stop-after DURATION] [-ignore-term] [COMMAND …]
//
//	serve                      answer HTTP requests until a signal arrives; the default command
//	crash-after DURATION CODE  serve, then exit with CODE
//	sleep DURATION [exit CODE] wait; a plain number means seconds
//	await FILE WORD…           wait until a file contains the words and nothing else
//	tick N INTERVAL            print N lines (0: without end), one each INTERVAL
//	exit CODE                  exit at once
//	true, false                exit at once with 0, 1
//	echo|stderr WORD…          print the words
//	env                        print the environment
//	cat [FILE…]                print files, or stdin
//	ls [DIR]                   print the names in a directory
//	stat FILE…                 print their modes, owners and groups
//	write FILE WORD…           write the words and a newline to a file
//	fill DIR MIB               write that much to files of 1 MiB in a directory
//	get URL [TIMEOUT]          print an HTTP server's response; fail if the connection takes longer
//	api PATH                   print the API server's response to the pod's service account
//	alloc MIB                  use that much memory and wait
//	load MILLICORES            use that much of a core and wait
//	do COMMAND then COMMAND …  run commands one after the other until one fails
//	not COMMAND                fail if the command succeeds
//
// Its pages are for probes: /status/CODE responds with the code, /file/NAME with 404 if the
// file is missing, /header/NAME/VALUE with 400 unless the request has the header, and gRPC's
// health check with SERVING. With -tls it serves HTTPS with a self-signed certificate.
//
// A signal is logged by its name ("received SIGTERM") and ends a waiting command with code 0:
// at once, after -stop-after, or never with -ignore-term. Called by the name of a command
// (sleep 5), the program runs that command.
//
// The program uses only its Process, so that the fake runtime can run it in memory.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// Killed is the exit code of a Run whose context ended: 128 + SIGKILL.
const Killed = 137

// Process is the program's environment. No field may be nil, except Stdin.
type Process struct {
	Args           []string // Args[0] is the program's name
	Env            []string // KEY=value; the last value of a key counts
	Hostname       string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal
	Clock          clock.Clock
	System         System
}

// Run runs the program to its end and returns its exit code: 2 for invalid arguments. It ends at once when ctx
// does. A cat of stdin leaves one goroutine behind until the next read of Stdin returns.
func Run(ctx context.Context, p Process) int {
	r := &run{Process: p}
	c, args, err := r.parse()
	if err != nil {
		return r.misused(err)
	}
	return c.run(r, ctx, args)
}

// Understands reports whether the arguments, the program's name first, are valid.
func Understands(args []string) bool {
	_, _, err := (&run{Process: Process{Args: args}}).parse()
	return err == nil
}

// Knows reports whether an executable of this name exists.
func Knows(executable string) bool {
	_, ok := commands()[path.Base(executable)]
	return ok || path.Base(executable) == "web"
}

// run is a running process of the program.
type run struct {
	Process
	listen     string
	stopAfter  time.Duration
	ignoreTerm bool
	tls        bool

	mu       sync.Mutex // guards Stdout, which handlers of requests share
	requests int        // guarded by mu
}

// parse returns the command and its arguments.
func (r *run) parse() (command, []string, error) {
	words, err := r.words()
	if err != nil {
		return command{}, nil, err
	}
	c, err := lookUp(words)
	return c, words[1:], err
}

// lookUp finds the command of the first word.
func lookUp(words []string) (command, error) {
	if len(words) == 0 {
		return command{}, errors.New("no command")
	}
	c, ok := commands()[words[0]]
	if !ok {
		return command{}, fmt.Errorf("no such command: %s", words[0])
	}
	if args := len(words) - 1; args < c.min || args > c.max {
		return command{}, fmt.Errorf("wrong number of arguments: %d", args)
	}
	return c, nil
}

// words returns the command's name and arguments, and sets the flags.
func (r *run) words() ([]string, error) {
	if len(r.Args) == 0 {
		return nil, errors.New("the name of the program is missing")
	}
	if name := path.Base(r.Args[0]); name != "web" {
		return append([]string{name}, r.Args[1:]...), nil
	}
	flags := flag.NewFlagSet("web", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&r.listen, "listen", r.defaultAddress(), "")
	flags.DurationVar(&r.stopAfter, "stop-after", 0, "")
	flags.BoolVar(&r.ignoreTerm, "ignore-term", false, "")
	flags.BoolVar(&r.tls, "tls", false, "")
	if err := flags.Parse(r.Args[1:]); err != nil {
		return nil, err
	}
	if flags.NArg() == 0 {
		return []string{"serve"}, nil
	}
	return flags.Args(), nil
}

func (r *run) defaultAddress() string {
	if port := r.getenv("PORT"); port != "" {
		return ":" + port
	}
	return ":8080"
}

// getenv returns the last value of an environment variable.
func (r *run) getenv(key string) (value string) {
	for _, kv := range r.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			value = v
		}
	}
	return value
}

// pause waits for d, without end if d is negative. It returns whether the program must end instead, and with
// which code.
func (r *run) pause(ctx context.Context, d time.Duration) (code int, over bool) {
	var after <-chan time.Time
	if d >= 0 {
		timer := r.Clock.NewTimer(d)
		defer timer.Stop()
		after = timer.C()
	}
	for {
		select {
		case <-ctx.Done():
			return Killed, true
		case <-after:
			return 0, false
		case sig := <-r.Signals:
			if code, over := r.signalled(ctx, sig); over {
				return code, true
			}
		}
	}
}

// signalled handles a signal according to the flags.
func (r *run) signalled(ctx context.Context, sig os.Signal) (code int, over bool) {
	r.logf("received %s", signalName(sig))
	if r.ignoreTerm {
		return 0, false
	}
	if r.stopAfter > 0 {
		r.logf("stopping takes %s", r.stopAfter)
		select {
		case <-ctx.Done():
			return Killed, true
		case <-r.Clock.After(r.stopAfter):
		}
	}
	r.logf("stopped")
	return 0, true
}

func signalName(sig os.Signal) string {
	if s, ok := sig.(syscall.Signal); ok && unix.SignalName(s) != "" {
		return unix.SignalName(s)
	}
	return sig.String()
}

func (r *run) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.Stdout, format+"\n", args...)
}

func (r *run) failed(err error) int {
	fmt.Fprintf(r.Stderr, "web: %v\n", err)
	return 1
}

func (r *run) misused(err error) int {
	r.failed(err)
	return 2
}
