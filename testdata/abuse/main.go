// Command abuse sends random, invalid and hostile requests to a running monopod, over real connections and as several
// users: all verbs, unusual paths, hostile, truncated and slow bodies, and watches and streams that it closes early. At
// the end it compares the resources of the idle server with those before.
//
//	monopod serve --runtime=fake --data-dir=DIR &
//	go run ./testdata/abuse --data-dir=DIR --duration=1h --seed=1
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "abuse:", err)
		os.Exit(1)
	}
}

// command parses the flags, and runs until the duration has passed or an interrupt.
func command() error {
	var c config
	flag.StringVar(&c.dataDir, "data-dir", "/var/lib/monopod", "data folder of the server, for its address and token")
	flag.DurationVar(&c.duration, "duration", time.Minute, "duration of the requests")
	flag.DurationVar(&c.settle, "settle", 15*time.Minute, "maximum time for the server to become idle again")
	flag.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random choices")
	flag.IntVar(&c.workers, "workers", 8, "number of concurrent clients")
	flag.Float64Var(&c.memory, "memory", 32e6, "maximum growth of the server's memory, in bytes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, c, os.Stdout)
}
