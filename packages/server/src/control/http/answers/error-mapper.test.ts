import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { errorCodes } from 'fastify';
import { toAppError } from './error-mapper.ts';

/** An instance of every error that Fastify can throw. */
const frameworkErrors = Object.entries(errorCodes).map(([name, FrameworkError]) => ({
  name,
  error: new FrameworkError(),
}));

test('every error for which Fastify blames the client reaches the client', () => {
  const blaming = frameworkErrors.filter(({ error: { statusCode = 500 } }) => statusCode < 500);
  assert.ok(blaming.length > 10, 'Fastify has not changed how its errors look');
  for (const { name, error } of blaming) {
    const { status, code, message } = toAppError(error);
    assert.ok(status >= 400 && status < 500, `${name} is ${status}`);
    assert.ok(code === 'invalid_request' || code === 'payload_too_large', `${name} is ${code}`);
    assert.doesNotMatch(message, /%s|FST_/u);
  }
});

test('all other errors of Fastify are faults of the service', () => {
  for (const { name, error } of frameworkErrors.filter(
    ({ error: { statusCode = 500 } }) => statusCode >= 500,
  ))
    assert.equal(toAppError(error).code, 'internal', name);
});

test('a body that breaks off is not a fault of the database', () => {
  const aborted = Object.assign(new Error('aborted'), { code: 'ECONNRESET', statusCode: 400 });
  assert.equal(toAppError(aborted).code, 'invalid_request');
  const { code } = toAppError(Object.assign(new Error('read'), { code: 'ECONNRESET' }));
  assert.equal(code, 'unavailable');
});

test('an error of the service keeps its code, and the text of any other error stays internal', () => {
  const known = new AppError('disk_full', 'x');
  assert.equal(toAppError(known), known);
  for (const thrown of [new Error('secret'), 'secret', null, undefined, { statusCode: 404 }]) {
    const { code, message } = toAppError(thrown);
    assert.equal(code, 'internal');
    assert.doesNotMatch(message, /secret/u);
  }
});
