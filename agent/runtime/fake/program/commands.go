package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// command is a command of the program with its minimum and maximum number of arguments.
type command struct {
	run      func(*run, context.Context, []string) int
	min, max int
}

func commands() map[string]command {
	return map[string]command{
		"serve":       {func(r *run, ctx context.Context, _ []string) int { return r.serveFor(ctx, -1, 0) }, 0, 0},
		"crash-after": {(*run).crashAfter, 2, 2},
		"sleep":       {(*run).sleep, 1, 3},
		"await":       {(*run).await, 2, math.MaxInt},
		"tick":        {(*run).tick, 2, 2},
		"exit":        {(*run).exit, 1, 1},
		"true":        {func(*run, context.Context, []string) int { return 0 }, 0, math.MaxInt},
		"false":       {func(*run, context.Context, []string) int { return 1 }, 0, math.MaxInt},
		"echo":        {(*run).echo, 0, math.MaxInt},
		"stderr":      {(*run).stderr, 0, math.MaxInt},
		"env":         {(*run).env, 0, 0},
		"cat":         {(*run).cat, 0, math.MaxInt},
		"ls":          {(*run).ls, 0, 1},
		"stat":        {(*run).stat, 1, math.MaxInt},
		"write":       {(*run).write, 1, math.MaxInt},
		"fill":        {(*run).fill, 2, 2},
		"get":         {(*run).get, 1, 2},
		"api":         {(*run).api, 1, 1},
		"alloc":       {(*run).alloc, 1, 1},
		"load":        {(*run).load, 1, 1},
		"do":          {(*run).do, 1, math.MaxInt},
		"not":         {(*run).not, 1, math.MaxInt},
	}
}

// do runs commands one after the other, separated by the word "then", until one exits with anything but 0.
func (r *run) do(ctx context.Context, args []string) int {
	for len(args) > 0 {
		words := args
		if i := slices.Index(args, "then"); i >= 0 {
			words, args = args[:i], args[i+1:]
		} else {
			args = nil
		}
		c, err := lookUp(words)
		if err != nil {
			return r.misused(err)
		}
		if code := c.run(r, ctx, words[1:]); code != 0 {
			return code
		}
	}
	return 0
}

// not fails if its command succeeds.
func (r *run) not(ctx context.Context, args []string) int {
	c, err := lookUp(args)
	if err != nil {
		return r.misused(err)
	}
	if c.run(r, ctx, args[1:]) == 0 {
		return 1
	}
	return 0
}

func (r *run) sleep(ctx context.Context, args []string) int {
	if len(args) > 1 && (len(args) != 3 || args[1] != "exit") {
		return r.misused(errors.New(`want "sleep DURATION" or "sleep DURATION exit CODE"`))
	}
	d, err := duration(args[0])
	if err != nil {
		return r.misused(err)
	}
	if code, over := r.pause(ctx, d); over {
		return code
	}
	if len(args) == 3 {
		return r.exit(ctx, args[2:])
	}
	return 0
}

// awaitPause is the interval at which await reads the file.
const awaitPause = 50 * time.Millisecond

func (r *run) await(ctx context.Context, args []string) int {
	for {
		data, err := r.System.ReadFile(args[0])
		if err == nil && strings.TrimSpace(string(data)) == strings.Join(args[1:], " ") {
			return 0
		}
		if code, over := r.pause(ctx, awaitPause); over {
			return code
		}
	}
}

func (r *run) tick(ctx context.Context, args []string) int {
	n, errN := strconv.Atoi(args[0])
	every, errEvery := duration(args[1])
	if err := errors.Join(errN, errEvery); err != nil {
		return r.misused(err)
	}
	for i := 1; ; i++ {
		r.logf("tick %d", i)
		if i == n {
			return 0
		}
		if code, over := r.pause(ctx, every); over {
			return code
		}
	}
}

func (r *run) exit(_ context.Context, args []string) int {
	code, err := strconv.ParseUint(args[0], 10, 8)
	if err != nil {
		return r.misused(err)
	}
	return int(code)
}

func (r *run) echo(_ context.Context, args []string) int {
	r.logf("%s", strings.Join(args, " "))
	return 0
}

func (r *run) stderr(_ context.Context, args []string) int {
	fmt.Fprintln(r.Stderr, strings.Join(args, " "))
	return 0
}

func (r *run) env(context.Context, []string) int {
	for _, kv := range r.Env {
		r.logf("%s", kv)
	}
	return 0
}

func (r *run) cat(ctx context.Context, args []string) int {
	if len(args) == 0 {
		return r.catStdin(ctx)
	}
	for _, name := range args {
		data, err := r.System.ReadFile(name)
		if err != nil {
			return r.failed(err)
		}
		r.Stdout.Write(data)
	}
	return 0
}

// catStdin copies until Stdin ends or a signal arrives; a read cannot be interrupted, so it runs on another
// goroutine.
func (r *run) catStdin(ctx context.Context) int {
	if r.Stdin == nil {
		return 0
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	eof := make(chan struct{})
	go func() {
		defer close(eof)
		io.Copy(r.Stdout, r.Stdin)
	}()
	for {
		select {
		case <-eof:
			return 0
		case <-ctx.Done():
			return Killed
		case sig := <-r.Signals:
			if code, over := r.signalled(ctx, sig); over {
				return code
			}
		}
	}
}

func (r *run) ls(_ context.Context, args []string) int {
	names, err := r.System.ReadDir(append(args, ".")[0])
	if err != nil {
		return r.failed(err)
	}
	for _, name := range names {
		r.logf("%s", name)
	}
	return 0
}

// stat prints the modes, owners and groups of files.
func (r *run) stat(_ context.Context, args []string) int {
	for _, name := range args {
		info, err := r.System.Stat(name)
		if err != nil {
			return r.failed(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return r.failed(fmt.Errorf("%s: unknown owner", name))
		}
		r.logf("%s %v %d %d", name, info.Mode(), st.Uid, st.Gid)
	}
	return 0
}

func (r *run) write(_ context.Context, args []string) int {
	if err := r.System.WriteFile(args[0], []byte(strings.Join(args[1:], " ")+"\n")); err != nil {
		return r.failed(err)
	}
	return 0
}

func (r *run) fill(_ context.Context, args []string) int {
	mib, err := strconv.ParseUint(args[1], 10, 31)
	if err != nil {
		return r.misused(err)
	}
	data := make([]byte, 1<<20)
	for i := range mib {
		if err := r.System.WriteFile(path.Join(args[0], strconv.FormatUint(i, 10)), data); err != nil {
			return r.failed(err)
		}
	}
	return 0
}

func (r *run) get(ctx context.Context, args []string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return r.misused(err)
	}
	dial := r.System.Dial
	if len(args) > 1 {
		timeout, err := time.ParseDuration(args[1])
		if err != nil {
			return r.misused(err)
		}
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return r.System.Dial(ctx, network, address)
		}
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return r.failed(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(r.Stdout, resp.Body); err != nil {
		return r.failed(err)
	}
	if resp.StatusCode >= 400 {
		return r.failed(errors.New(resp.Status))
	}
	return 0
}

func (r *run) alloc(ctx context.Context, args []string) int {
	mib, err := strconv.ParseInt(args[0], 10, 32)
	if err != nil {
		return r.misused(err)
	}
	release, err := r.System.Allocate(mib << 20)
	if err != nil {
		return r.failed(err)
	}
	defer release()
	r.logf("using %d MiB", mib)
	code, _ := r.pause(ctx, -1)
	return code
}

func (r *run) load(ctx context.Context, args []string) int {
	millicores, err := strconv.ParseInt(args[0], 10, 32)
	if err != nil || millicores < 0 {
		return r.misused(fmt.Errorf("invalid number of millicores: %s", args[0]))
	}
	release, err := r.System.Load(millicores)
	if err != nil {
		return r.failed(err)
	}
	defer release()
	r.logf("using %d millicores", millicores)
	code, _ := r.pause(ctx, -1)
	return code
}

// duration parses a Go duration, or a number of seconds like sleep(1).
func duration(s string) (time.Duration, error) {
	if s == "infinity" {
		return math.MaxInt64, nil
	}
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = fmt.Errorf("negative duration %s", s)
	}
	return d, err
}
