package clock

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"coppice/agent/internal/api"
)

// Timer is the timer that wakes the first processor, and the rate at which the kernel assumes it counts. If the kernel
// measured a rate that is too high, it wakes all programs too late by the same factor.
type Timer struct {
	Device string `json:"device"`
	RateHz uint64 `json:"rate_hz"`
}

var errNoTimer = errors.New("/proc/timer_list does not show the first processor's timer")

// HandleTimer answers GET /timer.
func HandleTimer(w http.ResponseWriter, _ *http.Request) error {
	list, err := os.Open("/proc/timer_list")
	if err != nil {
		return err
	}
	timer, err := readTimer(list)
	if err := errors.Join(err, list.Close()); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, timer)
	return nil
}

// readTimer finds these lines. It skips the device for processors that sleep deeply, which is listed first:
//
//	Per CPU device: 0
//	Clock Event Device: lapic
//	 mult:           268435456
//	 shift:          32
func readTimer(list io.Reader) (Timer, error) {
	var timer Timer
	var mult uint64
	isFirst := false
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		key, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		value = strings.TrimSpace(value)
		switch {
		case key == "Per CPU device":
			isFirst = true
		case !isFirst:
		case key == "Clock Event Device":
			timer.Device = value
		case key == "mult":
			mult, _ = strconv.ParseUint(value, 10, 32)
		case key == "shift":
			shift, err := strconv.ParseUint(value, 10, 6)
			if err != nil || mult == 0 || timer.Device == "" {
				return Timer{}, errNoTimer
			}
			// mult is the number of counts in a nanosecond, shifted.
			timer.RateHz = mult * 1e9 >> shift
			return timer, nil
		}
	}
	return Timer{}, errors.Join(errNoTimer, lines.Err())
}
