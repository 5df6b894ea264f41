import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { chooseConfinement } from './confinement-probe.ts';

/** Runs the probe with a launcher script. It finds the plan in $plan and exits with 0 if it could create that jail. */
async function choose(script: string, isRoot: boolean) {
  const directory = mkdtempSync(join(tmpdir(), 'probe-'));
  try {
    const launcherPath = join(directory, 'launcher');
    writeFileSync(launcherPath, `#!/bin/sh\nplan=$(cat)\n${script}\n`, { mode: 0o755 });
    const choice = await chooseConfinement({ launcherPath, isRoot, uid: 4711 }).catch(
      (error: unknown) => error,
    );
    return choice;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const NO_NAMESPACES =
  'case $plan in *\'"namespaces":true\'*) echo "jail: making namespaces: no" >&2; exit 1;; esac';

test('root gets full confinement if possible', async () => {
  const choice = await choose('case $plan in *\'"uid":4711\'*) exit 0;; *) exit 1;; esac', true);
  assert.equal((choice as { kind: string }).kind, 'full');
});

test('without namespaces the choice gives the reason and its consequence', async () => {
  for (const isRoot of [true, false]) {
    const choice = await choose(NO_NAMESPACES, isRoot);
    const { kind, reason } = choice as { kind: string; reason: string };
    assert.equal(kind, 'reduced');
    assert.match(reason, /^QEMU sees the host's files .* is not available: /u);
  }
});

test('a host on which nothing can be confined is refused', async () => {
  const choice = await choose('echo "jail: filtering system calls: no" >&2; exit 1', true);
  assert.match(String(choice), /cannot be confined.*filtering system calls: no/u);
});

test('an ordinary user cannot change identity', async () => {
  const script = `printf %s "$plan" > "$(dirname "$0")/plan"; exit 1`;
  const directory = mkdtempSync(join(tmpdir(), 'probe-'));
  try {
    const launcherPath = join(directory, 'launcher');
    writeFileSync(launcherPath, `#!/bin/sh\nplan=$(cat)\n${script}\n`, { mode: 0o755 });
    await assert.rejects(chooseConfinement({ launcherPath, isRoot: false, uid: 4711 }));
    const plan = JSON.parse(readFileSync(join(directory, 'plan'), 'utf8')) as Record<string, unknown>;
    assert.equal(plan['identity'], null);
    assert.equal(plan['namespaces'], false);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
