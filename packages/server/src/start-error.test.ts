import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { ObjectStoreError } from './lib/objects/object-store-error.ts';
import { listening } from './lib/process/listening.ts';
import { NotJoinedError } from './runner/identity/join-record.ts';
import { explainStart, StartError } from './start-error.ts';

test('the error for a port in use names the setting that changes it', async () => {
  await using first = createServer().listen(0, '127.0.0.1');
  await once(first, 'listening');
  const { port } = first.address() as AddressInfo;
  const second = createServer().listen(port, '127.0.0.1');
  const [error] = (await once(second, 'error')) as [Error];
  const told = explainStart(error);
  assert.ok(told instanceof StartError);
  assert.equal(
    told.message,
    `127.0.0.1:${port} is in use by another program; set COPPICE_LISTEN to another address:port`,
  );
});

test('the error for the port of another listener names the setting of that one', async () => {
  await using first = createServer().listen(0, '127.0.0.1');
  await once(first, 'listening');
  const { port } = first.address() as AddressInfo;
  const second = createServer().listen(port, '127.0.0.1');
  const error: unknown = await listening(second, 'COPPICE_RUNNER_LISTEN').catch((reason: unknown) => reason);
  assert.match(
    String(explainStart(error)),
    /is in use by another program; set COPPICE_RUNNER_LISTEN to another/u,
  );
});

test('the error of a runner that has not joined has no stack', () => {
  assert.ok(explainStart(new NotJoinedError('this runner has not joined')) instanceof StartError);
});

test('the error names the variable of an option', () => {
  const told = explainStart(new AppError('invalid_request', 'guestCidr: "x" is no range; change guestCidr'));
  assert.equal(String(told), 'StartError: COPPICE_GUEST_CIDR: "x" is no range; change COPPICE_GUEST_CIDR');
});

test('an error that the operator cannot fix stays unchanged, with its stack', () => {
  const bug = new TypeError('x is undefined');
  assert.equal(explainStart(bug), bug);
  const other = new AppError('invalid_request', 'slug: is wrong');
  assert.equal(explainStart(other), other);
});

test('the error of an object store names its setting', () => {
  const told = explainStart(new ObjectStoreError('object store s3://b: why', { isTransient: false }));
  assert.equal(String(told), 'StartError: COPPICE_OBJECT_STORE: object store s3://b: why');
});
