package commandline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestSampled: of a message that floods the log, the first ones of each second are logged, and then one of a hundred; others are not affected.
func TestSampled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		log := zap.New(newSampled(core))
		flood := func(n int) {
			for i := range n {
				log.With(zap.Int("i", i)).Info("flood")
			}
		}
		logged := func(message string) int { return logs.FilterMessage(message).Len() }
		flood(1000)
		log.Info("other")
		log.Warn("flood")
		log.Debug("other")
		if got := logged("flood"); got != often+9+1 { // the last one is of another level
			t.Errorf("%d of a thousand and one are logged, want %d", got, often+9+1)
		}
		time.Sleep(time.Second)
		flood(10)
		if got := logged("flood"); got != often+9+1+10 {
			t.Errorf("%d are logged after a second, want %d", got, often+9+1+10)
		}
		if got := logged("other"); got != 1 {
			t.Errorf("another message is logged %d times, want once", got)
		}
		for i := range 3 * maxCounted {
			log.Info(fmt.Sprint(i))
		}
		if counted := log.Core().(sampled).counts.of; len(counted) > maxCounted {
			t.Errorf("%d messages are counted, at most %d may be", len(counted), maxCounted)
		}
	})
}
