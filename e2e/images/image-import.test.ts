/** `coppice admin image import` with a running service, as an operator without a registry uses it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { busyboxEntries } from '../fixtures/images/image-kind.ts';
import { OciLayout } from '../fixtures/images/oci-layout.ts';
import type { Service } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';
import { countTemplates, countTemplatesAt, listTemplates } from '../fixtures/service/template-log.ts';

const COPPICE = fileURLToPath(new URL('../../packages/cli/bin/coppice.mjs', import.meta.url));

/** An import waits until the image is ready. */
const TIMEOUT_MS = 180_000;

function coppice({ dataDir, runDir }: Pick<Service, 'dataDir' | 'runDir'>, ...args: string[]) {
  const env = { ...process.env, COPPICE_DATA_DIR: dataDir, COPPICE_RUN_DIR: runDir };
  const options = { env, encoding: 'utf8', timeout: TIMEOUT_MS } as const;
  return spawnSync(process.execPath, [COPPICE, 'admin', 'image', ...args], options);
}

test('an image is imported from an archive into a running service, used and removed', async () => {
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
  assert.match(before.text, /coppice admin image import/u);
  const imported = coppice(service, 'import', archive, '--as', 'local/tools:1');
  assert.equal(imported.status, 0, imported.stderr);
  assert.match(
    imported.stdout,
    /^imported local\/tools:1\n {2}digest sha256:[0-9a-f]{64}\n {2}1 layer, \d+ MiB/u,
  );
  assert.match(imported.stdout, /\nReady: a create of \{"image": "local\/tools:1"\}/u);
  const digest = /sha256:[0-9a-f]{64}/u.exec(imported.stdout)?.[0];
  assert.match(coppice(service, 'list').stdout, /^local\/tools:1 {2}sha256:/u);

  const isReady = (): boolean =>
    listTemplates(service).some(({ image }) => image === `local/tools:1@${digest}`);
  await service.waitFor('the template made by the import', 10_000, isReady);
  const made = countTemplates(service);
  const sandbox = await api.create({ image: 'local/tools:1' });
  assert.equal(await countTemplatesAt(service, sandbox.id), made);
  assert.equal(sandbox['image'], `local/tools:1@${digest}`);
  assert.equal((await api.exec(sandbox.id, 'cat /etc/imported')).stdout, 'by hand');
  const removed = coppice(service, 'remove', 'local/tools:1');
  assert.equal(removed.status, 0, removed.stderr);
  assert.equal((await api.exec(sandbox.id, 'cat /etc/imported')).stdout, 'by hand');
  await api.destroy(sandbox.id);
});

test('an import without a running service says when the image will be prepared', async () => {
  const directory = mkdtempSync('/var/tmp/coppice-e2e-import-');
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  const layout = await OciLayout.create(join(directory, 'layout'));
  await layout.tag('x', await layout.addImage({ layers: [{ entries: busyboxEntries() }] }));
  const nowhere = { dataDir: join(directory, 'data'), runDir: join(directory, 'run') };
  const imported = coppice(nowhere, 'import', layout.directory, '--as', 'local/tools:1');
  assert.equal(imported.status, 0, imported.stderr);
  assert.match(imported.stdout, /\nThe service does not run: it prepares the image at the first create/u);
});

test('an impossible import says why and changes nothing', async () => {
  const { service } = await shared();
  const before = coppice(service, 'list').stdout;
  const refusals: [string[], number, RegExp][] = [
    [['import', '/nonexistent', '--as', 'local/a:1'], 1, /\/nonexistent cannot be read \(ENOENT\)/u],
    [['import', '/var/tmp', '--as', 'docker.io/a:1'], 1, /"local\/<name>:<tag>"/u],
    [['import', '/var/tmp'], 2, /--as is missing/u],
    [['import', '/var/tmp', '--as', 'local/a:1', '--bogus'], 1, /--bogus/u],
    [['remove', 'local/absent:1'], 1, /no imported image/u],
    [['frobnicate'], 2, /import, list or remove/u],
  ];
  for (const [args, status, words] of refusals) {
    const answer = coppice(service, ...args);
    assert.deepEqual([answer.status, answer.stdout], [status, ''], answer.stderr);
    assert.match(answer.stderr, words);
    assert.equal(answer.stderr.trimEnd().split('\n').length, 1, answer.stderr);
  }
  assert.equal(coppice(service, 'list').stdout, before);
});
