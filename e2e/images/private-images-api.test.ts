/** Private images end to end: credentials in the API, docker-registry with a password file, real sandboxes. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Coppice, type BuildProgress } from '../../packages/sdk/src/index.ts';
import { Api } from '../fixtures/api/api.ts';
import { searchDisk } from '../fixtures/host/disk-search.ts';
import { addOrganization } from '../fixtures/accounts/organization.ts';
import { startRegistry, type Registry } from '../fixtures/images/registry.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';

const INSTANCE = 6;
const PASSWORD = 'right-4711-through-the-api';
const LOGIN = { username: 'ann', password: PASSWORD };
/** bcrypt hash of ann's password. docker-registry reads no other kind. */
const HTPASSWD = 'ann:$2y$05$abcdefghijklmnopqrstuul53yl.HhhddJ1dvMpsNzL0d2aBk9w0q\n';

describe('private images through the API', () => {
  const directory = mkdtempSync('/var/tmp/coppice-e2e-private-');
  let registry: Registry;
  let service: Service;
  let api: Api;
  let mine: Coppice;
  let theirs: Coppice;
  let image: string;
  let digest: string;

  before(async () => {
    mkdirSync(join(directory, 'registry'));
    const passwords = join(directory, 'htpasswd');
    writeFileSync(passwords, HTPASSWD);
    {
      await using open = await startRegistry({ directory: join(directory, 'registry') });
      digest = await pushTinyImage(open, { name: 'team/app:1', programs: ['/bin/sh'] });
      await pushTinyImage(open, { name: 'team/other:1', programs: ['/bin/sh'] });
    }
    const auth = { htpasswd: { realm: 'test', path: passwords } };
    registry = await startRegistry({ directory: join(directory, 'registry'), auth });
    image = `${registry.name}/team/app:1`;
    const env = { COPPICE_INSECURE_REGISTRIES: registry.name, COPPICE_LOG_LEVEL: 'debug' };
    service = await startPrepared({ instance: INSTANCE, env });
    api = new Api(service);
    mine = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
    theirs = new Coppice({ baseUrl: service.address, apiKey: await addOrganization(service) });
  });
  after(async () => {
    await service?.[Symbol.asyncDispose]();
    await registry?.close();
    rmSync(directory, { recursive: true, force: true });
  });

  const listNames = async (client: Coppice): Promise<string[]> =>
    (await client.images.list()).map(({ image: name }) => name);

  it('without credentials neither a create nor a build gets the image, and the answer says what to do', async () => {
    for (const path of ['/v1/runs', '/v1/images/build']) {
      const answer = await api.call('POST', path, { body: { image } });
      assert.equal(answer.status, 404, answer.text);
      assert.match(answer.text, /image_not_found.*\/v1\/registries\//u);
    }
  });

  it('with credentials a build reports its progress, and a sandbox of the image runs', async () => {
    await mine.registries.set(registry.name, LOGIN);
    const told: BuildProgress[] = [];
    const built = await mine.images.build(image, { onProgress: (progress) => told.push(progress) });
    assert.deepEqual([built.digest, built.status], [digest, 'ready']);
    assert.deepEqual(
      [...new Set(told.map(({ step }) => step))].filter((step) => step !== 'template'),
      ['resolve', 'pull', 'flatten'],
    );
    const [last] = told.filter(({ step, doneBytes }) => step === 'pull' && doneBytes !== null).slice(-1);
    assert.ok(last !== undefined && last.doneBytes === last.totalBytes, JSON.stringify(told));
    await using sandbox = await mine.sandboxes.create({ image, memMiB: 256 });
    const shown = await sandbox.exec('read -r name < /etc/tiny-image; echo "$name"');
    assert.equal(shown.stdout, 'team/app:1\n');
  });

  it('another organization gets neither the prepared image nor its name', async () => {
    await assert.rejects(theirs.images.build(image), { code: 'image_not_found' });
    await assert.rejects(theirs.sandboxes.create({ image, memMiB: 256 }), { code: 'image_not_found' });
    const byDigest = `${registry.name}/team/app@${digest}`;
    await assert.rejects(theirs.sandboxes.create({ image: byDigest, memMiB: 256 }), {
      code: 'image_not_found',
    });
    assert.deepEqual(await theirs.registries.list(), []);
    assert.ok((await listNames(mine)).includes(`${image}@${digest}`));
    assert.ok(!(await listNames(theirs)).some((name) => name.includes('team/app')));
    assert.ok((await listNames(theirs)).every((name) => name.startsWith('coppice/')));
  });

  it('wrong credentials are refused, and the answer does not repeat them', async () => {
    await theirs.registries.set(registry.name, { username: 'ann', password: 'wrong-4712' });
    await assert.rejects(theirs.images.build(image), (error) => {
      assert.match(String(error), /image_not_found/u);
      return !/wrong-4712|right-4711/u.test(String(error));
    });
  });

  it('deleted credentials are invalid from the next create on, even for a stored image', async () => {
    await mine.registries.delete(registry.name);
    await assert.rejects(mine.sandboxes.create({ image, memMiB: 256 }), { code: 'image_not_found' });
    await mine.registries.set(registry.name, LOGIN);
    await using sandbox = await mine.sandboxes.create({ image, memMiB: 256 });
    assert.equal(sandbox.status, 'running');
  });

  it('a build continues when its client disconnects', async () => {
    const other = `${registry.name}/team/other:1`;
    const client = new AbortController();
    const leaving = mine.images.build(other, { onProgress: () => client.abort(), signal: client.signal });
    await assert.rejects(leaving, { name: 'AbortError' });
    await service.waitFor('the image', 60_000, async () =>
      (await listNames(mine)).some((name) => name.startsWith(`${other}@`)),
    );
  });

  it('credentials survive a restart, and the password is in no file and not in the log', async () => {
    await service.stop();
    await service.launch();
    mine = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
    await using sandbox = await mine.sandboxes.create({ image, memMiB: 256 });
    assert.equal(sandbox.status, 'running');
    const needles = [Buffer.from(PASSWORD), Buffer.from(Buffer.from(`ann:${PASSWORD}`).toString('base64'))];
    assert.deepEqual(await searchDisk(service.dataDir, needles), [false, false]);
    for (const needle of needles) assert.ok(!service.output.includes(needle.toString()));
  });
});
