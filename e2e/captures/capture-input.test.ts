/**
 * Invalid requests for forks, snapshots, hibernations and restores: the answer names the field, and nothing changes.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Answer, Api } from '../fixtures/api/api.ts';
import { CountingGuest, SMALL } from '../fixtures/captures/capture-guest.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { addOrganization } from '../fixtures/accounts/organization.ts';
import { shared } from '../fixtures/service/shared.ts';

const UNKNOWN_SNAPSHOT = `snap${'0'.repeat(20)}`;
const UNKNOWN_RUN = `run${'0'.repeat(20)}`;
const CALLS = ['fork', 'snapshot', 'hibernate', 'resume'] as const;

/** Operation, body, and a pattern for the field that the answer names. */
const BAD_BODIES: readonly [string, unknown, RegExp][] = [
  ['fork', { count: 0 }, /count/u],
  ['fork', { count: 101 }, /count/u],
  ['fork', { count: 'x' }, /count/u],
  ['fork', { count: 1.5 }, /count/u],
  ['fork', { count: 1, colour: 'red' }, /colour/u],
  ['fork', [], /body|object/u],
  ['snapshot', { name: '' }, /name/u],
  ['snapshot', { name: 'x'.repeat(129) }, /name/u],
  ['snapshot', { name: 'x', colour: 'red' }, /colour/u],
  ['rollback', {}, /snapshot_id/u],
  ['rollback', { snapshot_id: 7 }, /snapshot_id/u],
  ['rollback', { snapshot_id: UNKNOWN_SNAPSHOT, colour: 'red' }, /colour/u],
  ['hibernate', { colour: 'red' }, /colour/u],
  ['resume', { colour: 'red' }, /colour/u],
];

const BAD_RESTORES: readonly [unknown, RegExp][] = [
  [{}, /snapshot_id/u],
  [{ snapshot_id: UNKNOWN_SNAPSHOT, colour: 'red' }, /colour/u],
  [{ snapshot_id: UNKNOWN_SNAPSHOT, timeout: -1 }, /timeout/u],
  [{ snapshot_id: UNKNOWN_SNAPSHOT, image: 'coppice/base:1' }, /image/u],
];

describe('input of forks, snapshots and hibernations', () => {
  let api: Api;
  let clones: CloneApi;
  let guest: CountingGuest;
  let snapshotId = '';

  before(async () => {
    ({ api } = await shared());
    clones = new CloneApi(api);
    guest = await CountingGuest.create(api);
    snapshotId = await clones.snapshot(guest.id);
  });
  after(async () => {
    await clones.deleteSnapshot(snapshotId);
    await guest.destroy();
  });

  const post = (path: string, body?: unknown, key?: string): Promise<Answer> =>
    api.call('POST', path, {
      ...(body === undefined ? {} : { body }),
      ...(key === undefined ? {} : { key }),
    });
  const ofGuest = (what: string): string => `/v1/runs/${guest.id}/${what}`;

  const assertError = (answer: Answer, status: number, code: string): void => {
    const { code: found } = (answer.body['error'] ?? {}) as { code?: string };
    assert.deepEqual([answer.status, found], [status, code], answer.text);
  };

  for (const [what, body, names] of BAD_BODIES) {
    it(`a ${what} with ${JSON.stringify(body).slice(0, 60)} is refused, and the answer names the field`, async () => {
      const refused = await post(ofGuest(what), body);
      assertError(refused, 400, 'invalid_request');
      assert.match(refused.text, names);
    });
  }

  for (const [body, names] of BAD_RESTORES) {
    it(`a restore with ${JSON.stringify(body)} is refused, and the answer names the field`, async () => {
      const refused = await post('/v1/runs/restore', body);
      assertError(refused, 400, 'invalid_request');
      assert.match(refused.text, names);
    });
  }

  it('unknown sandboxes and snapshots give 404', async () => {
    for (const unknown of [UNKNOWN_SNAPSHOT, 'nonsense', '../../../etc'])
      for (const path of ['/v1/runs/restore', ofGuest('rollback')])
        assertError(await post(path, { snapshot_id: unknown }), 404, 'not_found');
    for (const what of CALLS) assertError(await post(`/v1/runs/${UNKNOWN_RUN}/${what}`), 404, 'not_found');
    assertError(await api.call('DELETE', `/v1/snapshots/${UNKNOWN_SNAPSHOT}`), 404, 'not_found');
  });

  it("another organization's sandboxes and snapshots give 404", async () => {
    const key = await addOrganization(api.service);
    const other = await post('/v1/runs', SMALL, key);
    assert.equal(other.status, 201, other.text);
    const id = String(other.body['id']);
    for (const path of ['/v1/runs/restore', `/v1/runs/${id}/rollback`])
      assertError(await post(path, { snapshot_id: snapshotId }, key), 404, 'not_found');
    for (const what of CALLS) assertError(await post(ofGuest(what), undefined, key), 404, 'not_found');
    assertError(await api.call('GET', ofGuest('tree'), { key }), 404, 'not_found');
    assertError(await api.call('DELETE', `/v1/snapshots/${snapshotId}`, { key }), 404, 'not_found');
    assert.deepEqual((await api.call('GET', '/v1/snapshots', { key })).body, []);
    assert.equal((await api.call('DELETE', `/v1/runs/${id}`, { key })).status, 200);
  });

  it('a rollback to a snapshot of a sandbox that is no ancestor gives 409', async () => {
    const { id } = await api.create(SMALL);
    const foreignId = await clones.snapshot(id);
    const refused = await post(ofGuest('rollback'), { snapshot_id: foreignId });
    assertError(refused, 409, 'invalid_state');
    assert.match(refused.text, new RegExp(id, 'u'));
    await clones.deleteSnapshot(foreignId);
    assert.equal((await api.destroy(id)).status, 200);
  });

  it('none of these requests has changed anything', async () => {
    assert.equal(await guest.isRunning(), true);
    await guest.waitUntilCounting(0);
    const { body } = await api.call('GET', ofGuest('tree'));
    assert.deepEqual(
      (body['nodes'] as { id: string }[]).map(({ id }) => id),
      [guest.id],
    );
    const listed = (await api.call('GET', `/v1/snapshots?run_id=${guest.id}`)).body as unknown as {
      id: string;
    }[];
    assert.deepEqual(
      listed.map(({ id }) => id),
      [snapshotId],
    );
  });
});
