/** `coppice image import` beside a service that runs, as an operator without a registry does it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { busyboxEntries } from './fixtures/image-kind.ts';
import { OciLayout } from './fixtures/oci-layout.ts';
import { shared } from './fixtures/shared.ts';

const COPPICE = fileURLToPath(new URL('../packages/cli/bin/coppice.mjs', import.meta.url));

function coppice(dataDir: string, ...args: string[]) {
  const env = { ...process.env, COPPICE_DATA_DIR: dataDir };
  return spawnSync(process.execPath, [COPPICE, 'image', ...args], { env, encoding: 'utf8', timeout: 60_000 });
}

test('an image is imported from an archive into a service that runs, used and removed', async () => {
  const { api, service } = await shared();
  const directory = mkdtempSync('/var/tmp/coppice-e2e-import-');
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  const layout = await OciLayout.create(join(directory, 'layout'));
  const label = { path: 'etc/imported', content: 'by hand' };
  await layout.tag('x', await layout.addImage({ layers: [{ entries: [...busyboxEntries(), label] }] }));
  const archive = join(directory, 'image.tar');
  spawnSync('tar', ['-C', layout.directory, '-cf', archive, '.'], { timeout: 20_000 });

  const before = await api.call('POST', '/v1/runs', { body: { image: 'local/tools:1' } });
  assert.equal(before.status, 404, before.text);
  assert.match(before.text, /coppice image import/u);
  const imported = coppice(service.dataDir, 'import', archive, '--as', 'local/tools:1');
  assert.equal(imported.status, 0, imported.stderr);
  assert.match(
    imported.stdout,
    /^imported local\/tools:1\n {2}digest sha256:[0-9a-f]{64}\n {2}1 layer, \d+ MiB/u,
  );
  const digest = /sha256:[0-9a-f]{64}/u.exec(imported.stdout)?.[0];
  assert.match(coppice(service.dataDir, 'list').stdout, /^local\/tools:1 {2}sha256:/u);

  const sandbox = await api.create({ image: 'local/tools:1', mem_mib: 256 });
  assert.equal(sandbox['image'], `local/tools:1@${digest}`);
  assert.equal((await api.exec(sandbox.id, 'cat /etc/imported')).stdout, 'by hand');
  const removed = coppice(service.dataDir, 'remove', 'local/tools:1');
  assert.equal(removed.status, 0, removed.stderr);
  assert.equal((await api.exec(sandbox.id, 'cat /etc/imported')).stdout, 'by hand');
  await api.destroy(sandbox.id);
});

test('an import that cannot be done says why and changes nothing', async () => {
  const { service } = await shared();
  const before = coppice(service.dataDir, 'list').stdout;
  const refusals: [string[], number, RegExp][] = [
    [['import', '/nonexistent', '--as', 'local/a:1'], 1, /\/nonexistent cannot be read \(ENOENT\)/u],
    [['import', '/var/tmp', '--as', 'docker.io/a:1'], 1, /"local\/<name>:<tag>"/u],
    [['import', '/var/tmp'], 2, /--as is missing/u],
    [['import', '/var/tmp', '--as', 'local/a:1', '--bogus'], 1, /--bogus/u],
    [['remove', 'local/absent:1'], 1, /no imported image/u],
    [['frobnicate'], 2, /import, list or remove/u],
  ];
  for (const [args, status, words] of refusals) {
    const answer = coppice(service.dataDir, ...args);
    assert.deepEqual([answer.status, answer.stdout], [status, ''], answer.stderr);
    assert.match(answer.stderr, words);
    assert.equal(answer.stderr.trimEnd().split('\n').length, 1, answer.stderr);
  }
  assert.equal(coppice(service.dataDir, 'list').stdout, before);
});
