package imagescmd

import (
	"context"
	"time"

	"monopod/apiserver/client/images"
	"monopod/apiserver/client/local"
)

// followPeriod is the interval of questions how far a pull is.
const followPeriod = 200 * time.Millisecond

// follow tells set how far the pull is that has just been asked for, until ctx ends. Errors are not shown: the pull has its own.
func follow(ctx context.Context, server *local.Server, set func(done, most int64)) {
	var s sum
	for {
		var now images.Downloads
		if server.JSON(ctx, images.Path+"?downloads", &now) == nil {
			set(s.add(now.Downloads))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(followPeriod):
		}
	}
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
