package cmd

import (
	"context"
	"fmt"
	"time"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
)

// followPeriod is the interval of questions how far a pull is.
const followPeriod = 200 * time.Millisecond

// follow shows how far the pull is that has just been asked for, until ctx ends. Errors are not shown: the pull has its
// own.
func follow(ctx context.Context, server *local.Server, name string, progress *commandline.Progress) {
	var s sum
	for {
		var now images.Downloads
		if server.JSON(ctx, images.Path+"?downloads", &now) == nil {
			progress.Call(called(name, now.Pulls))
			progress.Set(s.add(now.Downloads))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followPeriod):
		}
	}
}

// called says what the bytes are of: the runtime counts those of all pulls that go on at the same time.
func called(name string, pulls []string) string {
	if others := len(pulls) - 1; others > 0 {
		return fmt.Sprintf("pulling %s, together with %s,", name, words.Count(others, "other image"))
	}
	return "pulling " + name
}

// sum adds up the parts of an image, of which those that are complete are not listed any more.
type sum struct {
	parts map[string]images.Download // as they were seen last
}

// add returns how much is done, and of how much as far as that is known.
func (s *sum) add(now []images.Download) (done, most int64) {
	for ref, part := range s.parts {
		part.Done = part.Total // unless it is listed
		s.parts[ref] = part
	}
	if s.parts == nil {
		s.parts = map[string]images.Download{}
	}
	for _, part := range now {
		s.parts[part.Ref] = part
	}
	for _, part := range s.parts {
		done += part.Done
		most += max(part.Total, part.Done)
	}
	return done, most
}
