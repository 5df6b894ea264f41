package clock

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
)

func TestOnlyATimeIsTaken(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"clock_unix_ns":"-5"}`, `{"clock_unix_ns":"x"}`, `{"clock_unix_ns":17}`} {
		answer := httptest.NewRecorder()
		api.Router{"POST /clock": Handle}.ServeHTTP(answer, httptest.NewRequest("POST", "/clock", strings.NewReader(body)))
		if answer.Code != 400 || !strings.Contains(answer.Body.String(), "clock_unix_ns") {
			t.Error(body, answer.Code, answer.Body)
		}
	}
	if ns, err := Parse("clock_unix_ns", "1763700000123456789"); err != nil || ns != 1763700000123456789 {
		t.Error(ns, err)
	}
	if ns, err := Parse("clock_unix_ns", ""); err != nil || ns != 0 {
		t.Error(ns, err)
	}
}

func TestATimeOfTheMonotonicClockMustBeOne(t *testing.T) {
	answer := httptest.NewRecorder()
	body := strings.NewReader(`{"clock_unix_ns":"1","clock_monotonic_ns":"-1"}`)
	api.Router{"POST /clock": Handle}.ServeHTTP(answer, httptest.NewRequest("POST", "/clock", body))
	if answer.Code != 400 || !strings.Contains(answer.Body.String(), "clock_monotonic_ns") {
		t.Error(answer.Code, answer.Body)
	}
}

func TestTheClocksAreComparedWhereTheyWereReadAtOnce(t *testing.T) {
	const aheadNs = 1_763_700_000_000_000_000
	nowNs, readings := int64(5_000_000_000), 0
	read := func(clock int32, now *unix.Timespec) error {
		readings++
		// The machine stands still in the middle of the first two rounds.
		if readings == 2 || readings == 6 {
			nowNs += 70_000_000
		}
		*now = unix.NsecToTimespec(nowNs)
		if clock == unix.CLOCK_REALTIME {
			*now = unix.NsecToTimespec(nowNs + aheadNs)
		}
		nowNs += 1000
		return nil
	}
	if got, err := ahead(read); err != nil || got != aheadNs || readings != 9 {
		t.Error(got-aheadNs, readings, err)
	}
	refused := func(int32, *unix.Timespec) error { return unix.EPERM }
	if _, err := ahead(refused); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
}

func TestAClockIsMovedBackAsWellAsForward(t *testing.T) {
	for ns, want := range map[int64]unix.Timeval{
		0:              {},
		2_000_003_999:  {Sec: 2, Usec: 3},
		-1_000:         {Sec: -1, Usec: 999_999},
		-2_500_000_000: {Sec: -3, Usec: 500_000},
		-3_000_000_000: {Sec: -3},
	} {
		if got := toOffset(ns); got != want {
			t.Error(ns, got)
		}
	}
}
