import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { CliUser } from '../testing/cli-process.ts';
import { buildKnownHost, buildSshConfig, buildSshOptions, parseHost, parseUser } from './ssh-options.ts';

const KEY = `ssh-ed25519 ${'A'.repeat(68)}`;
const program = ['/opt/my node/bin/node', '/opt/100%/coppice.mjs'];

test('OpenSSH accepts the configuration, with spaces and percent signs in the path of the program', () => {
  const directory = mkdtempSync(join(tmpdir(), 'ssh-options-'));
  try {
    const file = join(directory, 'config');
    writeFileSync(file, buildSshConfig({ program, global: { profile: 'work' } }));
    const shown = execFileSync('ssh', ['-F', file, '-G', 'My-Box.coppice'], { encoding: 'utf8' });
    assert.match(shown, /^user default$/mu);
    assert.match(
      shown,
      /^proxycommand '\/opt\/my node\/bin\/node' \/opt\/100%%\/coppice\.mjs --profile work ssh-proxy --user %r -- %n$/mu,
    );
    assert.match(shown, /^stricthostkeychecking true$/mu);
    assert.match(shown, /^hostkeyalgorithms ssh-ed25519$/mu);
    assert.match(execFileSync('ssh', ['-F', file, '-G', 'other'], { encoding: 'utf8' }), /^host other$/mu);
    assert.doesNotMatch(execFileSync('ssh', ['-F', file, '-G', 'other'], { encoding: 'utf8' }), /ssh-proxy/u);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('ssh-config prints a configuration that OpenSSH accepts', async () => {
  using user = new CliUser();
  const { code, stdout, stderr } = await user.run(['ssh-config', '--profile', 'work']);
  assert.equal(code, 0, stderr);
  const file = join(user.home, 'config');
  writeFileSync(file, stdout);
  const shown = execFileSync('ssh', ['-F', file, '-G', 'first.coppice'], { encoding: 'utf8' });
  assert.match(shown, /^proxycommand .* --profile work ssh-proxy --user %r -- %n$/mu);
  assert.match(shown, /^stricthostkeychecking true$/mu);
  const json = JSON.parse((await user.run(['ssh-config', '--json', '--profile', 'work'])).stdout) as object;
  assert.deepEqual(json, { config: stdout });
});

test('a path that SSH cannot express is refused with the remedy', () => {
  assert.throws(
    () => buildSshOptions({ program: ['/a"b/node'], global: {} }, { host: '%n', user: '%r' }),
    /quotes or backslashes.*install coppice elsewhere/u,
  );
});

test('names and users of SSH become those of the service', () => {
  assert.equal(parseHost('first.coppice'), 'first');
  assert.equal(parseHost('first'), 'first');
  assert.equal(parseUser('default'), undefined);
  assert.equal(parseUser('root'), 'root');
});

test('only a key becomes a line of known hosts', () => {
  assert.equal(buildKnownHost(KEY), `* ${KEY}`);
  for (const bad of [`${KEY}\n* ssh-rsa AAAA`, 'ssh-rsa AAAA', '', `@cert-authority * ${KEY}`])
    assert.throws(() => buildKnownHost(bad), /not valid/u);
});
