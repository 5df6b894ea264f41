/** The queue of templates: one organization keeps requesting new shapes while another wants its first sandbox. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { addOrganization } from '../fixtures/accounts/organization.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { countTemplates, countTemplatesAt, listTemplates } from '../fixtures/service/template-log.ts';

const IMAGE = 'coppice/base:1';
/** Creates that wait for their own templates, and workers that create and destroy without end. */
const WAITING = 6;
const CHURNING = 3;
const TEMPLATE_TIMEOUT_MS = 300_000;
const END_TIMEOUT_MS = 30_000;
const BYSTANDER_MEM_MIB = 136;
/** More than the number of concurrent starts. */
const HUGE_DISKS = availableParallelism() + 4;
/** An emulated guest takes many seconds to grow the template's file system to this size. */
const HUGE_MIB = 1_048_575;

let service: Service;
let api: Api;
before(async () => {
  service = await startPrepared({ instance: 8 });
  api = new Api(service);
  // Prepares the image, so that no test waits for it.
  const { id } = await api.create({ image: IMAGE, mem_mib: 128, disk_mib: 64 });
  await countTemplatesAt(service, id);
  await api.destroy(id);
});
after(async () => {
  await service[Symbol.asyncDispose]();
});

/** Starts a create and waits only for its id. */
async function beginCreate(label: string, shape: object): Promise<{ id: string; answer: Promise<unknown> }> {
  const body = { image: IMAGE, timeout: 0, labels: { label }, ...shape };
  const answer = api.call('POST', '/v1/runs', { body });
  let id: string | undefined;
  await service.waitFor(`the record of ${label}`, END_TIMEOUT_MS, async () => {
    const list = await api.call('GET', `/v1/runs?label=label:${label}`);
    id = (list.body as unknown as { id: string }[])[0]?.id;
    return id !== undefined;
  });
  return { id: id ?? '', answer };
}

/** Creates and destroys, each time with another shape, until aborted. Returns the number of creates. */
async function churn(worker: number, stop: AbortSignal): Promise<number> {
  for (let asked = 0; ; asked += 1) {
    if (stop.aborted) return asked;
    const shape = { mem_mib: 200 + 8 * ((asked * CHURNING + worker) % 100), disk_mib: 64 + 37 * asked };
    const { id, answer } = await beginCreate(`churn-${worker}-${asked}`, shape);
    await api.destroy(id);
    await answer;
  }
}

test('an organization that keeps requesting new shapes delays the first sandbox of another by at most two templates', async () => {
  const other = await addOrganization(service);
  const before = countTemplates(service);
  const waiting = await Promise.all(
    Array.from({ length: WAITING }, (_, number) =>
      beginCreate(`waits-${number}`, {
        mem_mib: 144 + 8 * number,
        disk_mib: 64 * 8 ** (number % 3) + number,
      }),
    ),
  );
  const stop = new AbortController();
  const churning = Array.from({ length: CHURNING }, (_, worker) => churn(worker, stop.signal));
  await service.waitFor('the first template', TEMPLATE_TIMEOUT_MS, () => countTemplates(service) > before);

  const asked = countTemplates(service);
  const body = { image: IMAGE, mem_mib: BYSTANDER_MEM_MIB, disk_mib: 100 };
  const bystander = await api.call('POST', '/v1/runs', { body, key: other });
  assert.equal(bystander.status, 201, bystander.text);
  await countTemplatesAt(service, String(bystander.body['id']));
  const made = listTemplates(service).slice(asked);
  const own = made.findIndex(({ shape }) => shape.memMiB === BYSTANDER_MEM_MIB);
  // The template in progress, and the next one if the first ended while the request was under way.
  assert.ok(own >= 0 && own <= 2, JSON.stringify(made));

  stop.abort();
  const destroyed = (await Promise.all(churning)).reduce((sum, count) => sum + count, 0);
  assert.ok(destroyed >= CHURNING, `${destroyed} creates were destroyed`);
  await Promise.all(waiting.map(async ({ id }) => api.destroy(id)));
  await Promise.all(waiting.map(({ answer }) => answer));
  await service.waitFor(
    'the end of all cancelled creates',
    END_TIMEOUT_MS,
    () => service.vmPids().length === 1,
  );
  const rest = countTemplates(service);
  assert.ok(rest - asked < WAITING + destroyed, `${rest - asked} templates were made`);
  const deleted = await api.call('DELETE', `/v1/runs/${String(bystander.body['id'])}`, { key: other });
  assert.equal(deleted.status, 200);
  // A template that was still in the queue would be made now.
  const last = await api.create({ image: IMAGE, mem_mib: 128, disk_mib: 500 });
  assert.equal(await countTemplatesAt(service, last.id), rest);
  await api.destroy(last.id);
});

test('sandboxes whose huge disks are grown do not delay a sandbox whose disk is not', async () => {
  const shape = { mem_mib: 128, disk_mib: 64 };
  const first = await api.create({ image: IMAGE, mem_mib: 128, disk_mib: 262_144 });
  await api.destroy(first.id);
  let answered = 0;
  const growing = await Promise.all(
    Array.from({ length: HUGE_DISKS }, async (_, number) => {
      const begun = await beginCreate(`grows-${number}`, { mem_mib: 128, disk_mib: HUGE_MIB });
      return { ...begun, answer: begun.answer.then(() => (answered += 1)) };
    }),
  );
  const { id } = await api.create({ image: IMAGE, ...shape });
  assert.equal(answered, 0, 'no disk was grown before it started');
  await api.destroy(id);
  await Promise.all(growing.map(async (each) => api.destroy(each.id)));
  await Promise.all(growing.map(async ({ answer }) => answer));
});

test('a booted guest with damaged state is booted again, and its templates are made', async () => {
  const directory = join(service.dataDir, 'runner', 'templates');
  const record = (name: string): string => readFileSync(join(directory, name, 'template.json'), 'utf8');
  const isBooted = (name: string): boolean =>
    record(name).includes('"memMiB":128,') && !record(name).includes('image_digest');
  const [booted, ...others] = readdirSync(directory).filter(isBooted);
  assert.ok(booted !== undefined && others.length === 0);
  const devices = join(directory, booted, 'devices');
  rmSync(devices);
  writeFileSync(devices, 'no state of any device', { mode: 0o444 });
  const madeOf128 = listTemplates(service).filter(({ shape }) => shape.memMiB === 128);
  assert.ok(madeOf128.length >= 2, 'another template was made from it before');
  assert.doesNotMatch(service.output, /booting a new one/u);
  const before = countTemplates(service);
  const { id } = await api.create({ image: IMAGE, mem_mib: 128, disk_mib: 16_384 });
  assert.equal((await api.exec(id, 'echo up')).stdout, 'up\n');
  assert.equal(await countTemplatesAt(service, id), before + 1);
  assert.match(service.output, /a booted guest cannot be used; booting a new one/u);
  await api.destroy(id);
});
