import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  INVITATION,
  startHarness,
  startHarnessWith,
  type ControlHarness,
} from '../../../testing/control-harness.ts';
import { AccountClient, PASSWORD } from '../../../testing/requests/account-client.ts';

let harness: ControlHarness;
let email = '';
before(async () => {
  harness = await startHarnessWith({ trustedProxies: ['127.0.0.1'] });
  ({ email } = await AccountClient.signUp(harness, { invitation: INVITATION }));
});
after(() => harness[Symbol.asyncDispose]());

const signIn = (headers: Record<string, string>) =>
  harness.call('POST', '/account/sign-in', { apiKey: null, body: { email, password: PASSWORD }, headers });

test('behind a trusted proxy the own origin is the one that the proxy reports, and the cookie is Secure', async () => {
  const { status, headers } = await signIn({
    origin: 'https://sandboxes.example',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'sandboxes.example',
  });
  assert.equal(status, 200);
  assert.match(headers.getSetCookie()[0] ?? '', /; Secure$/);
});

test('an entry that the client wrote in front of the proxy does not count', async () => {
  const { body } = await signIn({
    origin: 'https://evil.example',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'evil.example, sandboxes.example',
  });
  assert.equal(body.error.code, 'forbidden_origin');
});

test('without a trusted proxy no header changes the own origin', async () => {
  await using other = await startHarness();
  const headers = { origin: 'https://sandboxes.example', 'x-forwarded-proto': 'https' };
  const forwarded = { ...headers, 'x-forwarded-host': 'sandboxes.example' };
  const body = { email: 'x@example.test', password: PASSWORD };
  const answer = await other.call('POST', '/account/sign-in', { apiKey: null, body, headers: forwarded });
  assert.equal(answer.body.error.code, 'forbidden_origin');
  assert.match(answer.body.error.message, /COPPICE_TRUSTED_PROXIES/);
});
