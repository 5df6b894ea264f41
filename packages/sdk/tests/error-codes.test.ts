import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { ErrorCode as ContractCode } from '@coppice/contract';
import { ERROR_CODES_FILE, renderErrorCodes } from '../tools/error-codes-source.ts';
import { CoppiceError, toCodes, type ErrorCode, type ServiceErrorCode } from '../src/transport/errors.ts';
import { errorBody, LoopbackServer } from '../src/testing/loopback-server.ts';

type Same<A, B> = [A, B] extends [B, A] ? true : never;
/** Does not compile when the union of the client differs from the table of the contract. */
const IS_SAME: Same<ContractCode, ServiceErrorCode> = true;

test('the error codes of the client are those of the contract', () => {
  assert.ok(IS_SAME);
  assert.equal(
    readFileSync(ERROR_CODES_FILE, 'utf8'),
    renderErrorCodes(),
    'run node packages/sdk/tools/write-error-codes.ts',
  );
});

test('the type of a code finds a misspelt one', () => {
  const isMissing = (code: ErrorCode): boolean => code === 'not_found' || code === 'http_404';
  // @ts-expect-error -- there is no such code
  const isMisspelt = (code: ErrorCode): boolean => code === 'notfound';
  assert.deepEqual([isMissing('not_found'), isMisspelt('not_found')], [true, false]);
});

test('a code that only a newer service has is unknown_code, and the code itself is not lost', async () => {
  assert.deepEqual(toCodes('not_found'), { code: 'not_found', serviceCode: 'not_found' });
  await using server = await LoopbackServer.answering(409, errorBody('brand_new', 'a new error'));
  await assert.rejects(server.client().usage(), (error) => {
    assert.ok(error instanceof CoppiceError);
    assert.deepEqual([error.code, error.serviceCode, error.status], ['unknown_code', 'brand_new', 409]);
    return error.detail === 'a new error';
  });
});
