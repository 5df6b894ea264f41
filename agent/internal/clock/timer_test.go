package clock

import (
	"strings"
	"testing"
)

const broadcast = `Tick Device: mode:     1
Broadcast device
Clock Event Device: pit
 max_delta_ns:   27461862
 min_delta_ns:   12571
 mult:           5124677
 shift:          32
tick_broadcast_mask: 0

Tick Device: mode:     1
`

func TestTheFirstProcessorsTimerIsRead(t *testing.T) {
	list := "Timer List Version: v0.9\nHRTIMER_MAX_CLOCK_BASES: 8\n\n" + broadcast +
		"Per CPU device: 0\nClock Event Device: lapic\n max_delta_ns:   34350744498\n min_delta_ns:   1000\n" +
		" mult:           268435456\n shift:          32\n mode:           3\n\n" +
		"Tick Device: mode:     1\nPer CPU device: 1\nClock Event Device: other\n mult: 1\n shift: 1\n"
	timer, err := readTimer(strings.NewReader(list))
	if err != nil || timer != (Timer{"lapic", 62_500_000}) {
		t.Fatal(timer, err)
	}
}

func TestAListThatTellsNoTimerIsAnError(t *testing.T) {
	for _, list := range []string{
		"", broadcast,
		broadcast + "Per CPU device: 0\nClock Event Device: lapic\n mult: x\n shift: 32\n",
		broadcast + "Per CPU device: 0\nClock Event Device: lapic\n mult: 1\n shift: 64\n",
		broadcast + "Per CPU device: 0\n mult: 1\n shift: 32\n",
	} {
		if timer, err := readTimer(strings.NewReader(list)); err == nil {
			t.Error(list, timer)
		}
	}
}
