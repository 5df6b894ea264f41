package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
)

func TestACommandThatTheImageCannotRunIsRefusedWithTheReason(t *testing.T) {
	directory := t.TempDir()
	shell, dangling, plain, file := filepath.Join(directory, "sh"), filepath.Join(directory, "link"),
		filepath.Join(directory, "plain"), filepath.Join(directory, "file")
	if err := errors.Join(
		os.WriteFile(shell, nil, 0o700), os.Symlink("nowhere", dangling), os.WriteFile(plain, nil, 0o600), os.WriteFile(file, nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		shell string
		place Place
		image guest.Settings
		code  fault.Code
		words string
	}{
		"no shell":             {directory + "/absent", Place{}, guest.Settings{Workdir: "/"}, fault.InvalidImage, "no " + directory + "/absent"},
		"dangling shell":       {dangling, Place{}, guest.Settings{Workdir: "/"}, fault.InvalidImage, "image with a shell"},
		"shell not executable": {plain, Place{}, guest.Settings{Workdir: "/"}, fault.InvalidImage, "executable"},
		"shell is a directory": {directory, Place{}, guest.Settings{Workdir: "/"}, fault.InvalidImage, "executable"},
		"image's user":         {shell, Place{}, guest.Settings{Workdir: "/", User: "app"}, fault.InvalidImage, `USER "app"`},
		"request's user":       {shell, Place{User: "app"}, guest.Settings{Workdir: "/"}, fault.InvalidRequest, `"app" is not in`},
		"image's group":        {shell, Place{}, guest.Settings{Workdir: "/", User: "0:staff"}, fault.InvalidImage, `group "staff"`},
		"image's directory":    {shell, Place{}, guest.Settings{Workdir: file}, fault.InvalidImage, "not a directory"},
		"request's directory":  {shell, Place{Cwd: "/absent"}, guest.Settings{Workdir: "/"}, fault.InvalidRequest, "create the directory"},
	} {
		launcher := &Launcher{root: directory, shell: c.shell}
		plan, err := launcher.Plan(c.place, c.image, nil)
		if err == nil {
			_, err = plan.Start(context.Background(), plan.RunInShell("true"), nil, false)
		}
		var known *fault.Error
		if !errors.As(err, &known) || known.Code != c.code || !strings.Contains(known.Message, c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatTheRequestOverridesNeedNotBeUsableInTheImage(t *testing.T) {
	launcher := NewLauncher(Options{Root: t.TempDir()})
	place := Place{User: "1000:1000", Cwd: "/"}
	if _, err := launcher.Plan(place, guest.Settings{User: "absent", Workdir: "/absent"}, nil); err != nil {
		t.Fatal(err)
	}
}
