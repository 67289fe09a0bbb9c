package cmd

import (
	"context"
	"fmt"
	"time"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/words"
)

// pullPollInterval is the interval of requests for the progress of a pull.
const pullPollInterval = 200 * time.Millisecond

// showPullProgress shows the progress of a pull until ctx ends. It ignores errors, because the pull reports its own.
func showPullProgress(ctx context.Context, server nodeImages, name string, progress *commandline.Progress) {
	var s downloadSum
	for {
		var now images.Downloads
		if server.JSON(ctx, server.path+"?downloads", &now) == nil {
			progress.SetTitle(pullTitle(name, now.Pulls))
			progress.Set(s.add(now.Downloads))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pullPollInterval):
		}
	}
}

// pullTitle names the other pulls, too, because the runtime reports the bytes of all pulls together.
func pullTitle(name string, pulls []string) string {
	if others := len(pulls) - 1; others > 0 {
		return fmt.Sprintf("pulling %s, together with %s,", name, words.Count(others, "other image"))
	}
	return "pulling " + name
}

// downloadSum adds up the parts of an image. The runtime no longer lists completed parts.
type downloadSum struct {
	parts map[string]images.Download // last known states
}

// add returns the downloaded bytes and the total, as far as that is known.
func (s *downloadSum) add(now []images.Download) (done, total int64) {
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
		total += max(part.Total, part.Done)
	}
	return done, total
}
