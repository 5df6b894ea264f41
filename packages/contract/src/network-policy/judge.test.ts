import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  isNameDenied,
  judge,
  judgeAddress,
  judgeFlow,
  judgeQuestion,
  judgeResolved,
  type Verdict,
} from './judge.ts';
import { compile } from './testing/policies.ts';
import {
  modelResolution,
  modelVerdict,
  someAddress,
  someDestination,
  someName,
  someRules,
  type ModelVerdict,
} from './testing/policy-model.ts';

const RUNS = { numRuns: 1500 };
const SERVER = '203.0.113.7';

function outcome(verdict: Verdict): ModelVerdict {
  return verdict.action === 'deny' ? 'deny' : verdict.dial;
}

function reason(verdict: Verdict | undefined): string | undefined {
  return verdict?.action === 'deny' ? verdict.reason : undefined;
}

test('any connection under any policy gets the verdict of the plain model', () => {
  fc.assert(
    fc.property(someRules, someDestination, (rules, destination) => {
      assert.equal(outcome(judge(compile(rules), destination)), modelVerdict(rules, destination));
    }),
    RUNS,
  );
});

test('no name changes a verdict by address, and a name is awaited only if it could change the verdict', () => {
  fc.assert(
    fc.property(
      someRules,
      someAddress,
      fc.array(someName, { minLength: 1, maxLength: 5 }),
      (rules, address, names) => {
        const policy = compile(rules);
        const early = judgeAddress(policy, address);
        const shown = [{}, { isNameHidden: true }, ...names.map((name) => ({ name }))];
        if (early === undefined) assert.ok(policy.needsNames);
        else for (const more of shown) assert.deepEqual(judge(policy, { address, ...more }), early);
      },
    ),
    RUNS,
  );
});

test('a guest can resolve only names that could be allowed, by name or by address', () => {
  fc.assert(
    fc.property(someRules, someName, someAddress, (rules, name, address) => {
      const policy = compile(rules);
      const resolution = judgeQuestion(policy, name);
      assert.equal(resolution, modelResolution(rules, name));
      assert.equal(judgeQuestion(policy, `${name.toUpperCase()}.`), resolution);
      const verdict = outcome(judge(policy, { address, name }));
      if (verdict === 'name') assert.equal(resolution, 'any_address');
      if (verdict === 'address') assert.notEqual(resolution, 'refused');
    }),
    RUNS,
  );
});

test('a name that no rule allows resolves only to addresses to which a connection is allowed', () => {
  fc.assert(
    fc.property(someRules, someName, someAddress, (rules, name, address) => {
      const policy = compile(rules);
      if (judgeQuestion(policy, name) !== 'allowed_addresses') return;
      const connected = judge(policy, { address, name }).action;
      assert.equal(judgeResolved(policy, name, address).action, connected);
    }),
    RUNS,
  );
});

test('a refused name has no address that could be dialled', () => {
  fc.assert(
    fc.property(someRules, someName, someAddress, (rules, name, address) => {
      const policy = compile(rules);
      if (judgeQuestion(policy, name) !== 'refused') return;
      assert.equal(judgeResolved(policy, name, address).action, 'deny');
      assert.equal(judge(policy, { address, name }).action, 'deny');
    }),
    RUNS,
  );
});

test('no name reaches an address that is denied by a rule or always closed', () => {
  const address = fc.oneof(someAddress, fc.constantFrom('10.0.0.1', '127.0.0.1', '198.51.100.1'));
  fc.assert(
    fc.property(someRules, address, someName, (rules, denied, name) => {
      const policy = compile(rules);
      const refusal = reason(judgeResolved(policy, name, denied));
      if (refusal === undefined || refusal === 'not_allowed' || isNameDenied(policy, name)) return;
      assert.equal(judge(policy, { address: denied, name }).action, 'deny');
      assert.equal(judge(policy, { address: denied }).action, 'deny');
    }),
    RUNS,
  );
});

test('an open connection stays open under the policy under which it was opened', () => {
  fc.assert(
    fc.property(someRules, someDestination, someAddress, (rules, destination, resolved) => {
      const policy = compile(rules);
      const verdict = judge(policy, destination);
      if (verdict.action === 'deny') return;
      const byName = verdict.dial === 'name' ? { address: resolved, name: verdict.name } : undefined;
      if (byName !== undefined && judgeResolved(policy, byName.name, resolved).action === 'deny') return;
      const flow = judgeFlow(policy, destination, byName ?? { address: destination.address });
      assert.equal(flow.action, 'allow');
    }),
    RUNS,
  );
});

test('no open connection survives a policy that would refuse where it leads', () => {
  fc.assert(
    fc.property(
      someRules,
      someDestination,
      someAddress,
      fc.option(someName),
      (rules, destination, address, name) => {
        const policy = compile(rules);
        const flow = judgeFlow(policy, destination, { address, name: name ?? undefined });
        if (flow.action === 'deny') return;
        assert.equal(judge(policy, destination).action, 'allow');
        if (flow.dial === 'name') {
          assert.equal(flow.name, name);
          assert.equal(judgeResolved(policy, flow.name, address).action, 'allow');
        } else assert.equal(outcome(judge(policy, { ...destination, address })), 'address');
      },
    ),
    RUNS,
  );
});

test('any text shown as a name gets a verdict, and an allow list allows no name that is not on it', () => {
  const policy = compile({ allow: ['a.example', '*.b.example'] });
  const hostile = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc
      .array(
        fc.constantFrom(
          'a',
          'b',
          '.',
          'example',
          '.example',
          '*',
          '\0',
          ':',
          '%',
          '[',
          ']',
          'xn--',
          ' ',
          'ａ',
        ),
      )
      .map((all) => all.join('')),
  );
  fc.assert(
    fc.property(hostile, (name) => {
      const verdict = judge(policy, { address: SERVER, name });
      if (verdict.action === 'deny') return;
      assert.equal(verdict.dial, 'name');
      assert.match(verdict.dial === 'name' ? verdict.name : '', /^(?:a|[a-z0-9_.-]+\.b)\.example$/u);
    }),
    { numRuns: 5000 },
  );
});

test('an allowed name is dialled by name, in its canonical spelling; *.name does not allow the parent', () => {
  const policy = compile({ allow: ['*.b.example'] });
  const verdict = judge(policy, { address: SERVER, name: 'X.B.Example.' });
  assert.deepEqual(verdict, { action: 'allow', dial: 'name', name: 'x.b.example', rule: '*.b.example' });
  assert.equal(reason(judge(policy, { address: SERVER, name: 'b.example' })), 'not_allowed');
  assert.equal(reason(judge(policy, { address: SERVER, name: 'xb.example' })), 'not_allowed');
  assert.equal(reason(judge(policy, { address: SERVER })), 'name_missing');
  assert.equal(reason(judge(policy, { address: SERVER, isNameHidden: true })), 'name_hidden');
  assert.equal(reason(judge(policy, { address: SERVER, name: 'x.b.example:443' })), 'name_invalid');
});

test('an address in place of a name is not a name, and must be the address connected to', () => {
  const denied = compile({ deny: ['a.example'] });
  assert.equal(outcome(judge(denied, { address: SERVER, name: SERVER })), 'address');
  assert.equal(outcome(judge(denied, { address: '2a00::7', name: '[2A00:0::7]' })), 'address');
  for (const name of ['203.0.113.8', '[2a00::7]', '0xcb007107', '3405803783', '203.0.113.7.'])
    assert.equal(reason(judge(denied, { address: SERVER, name })), 'name_invalid', name);
});

test('an allow list with only addresses decides before any byte arrives', () => {
  const policy = compile({ allow: ['203.0.113.0/24'], deny: ['203.0.113.9'] });
  assert.equal(policy.needsNames, false);
  assert.equal(outcome(judgeAddress(policy, SERVER)!), 'address');
  assert.equal(outcome(judgeAddress(policy, `::ffff:${SERVER}`)!), 'address');
  assert.equal(reason(judgeAddress(policy, '203.0.113.9')), 'denied_by_rule');
  assert.equal(reason(judgeAddress(policy, '198.51.100.7')), 'not_allowed');
});

test('with address rules a name resolves to allowed addresses; a name allowed by a rule resolves to all its addresses', () => {
  const policy = compile({ allow: ['203.0.113.0/24', 'a.example'], deny: ['203.0.113.9', 'evil.example'] });
  assert.equal(judgeQuestion(policy, 'a.example'), 'any_address');
  assert.equal(judgeResolved(policy, 'a.example', '198.51.100.7').action, 'allow');
  assert.equal(judgeQuestion(policy, 'b.example'), 'allowed_addresses');
  assert.equal(judgeResolved(policy, 'b.example', SERVER).action, 'allow');
  assert.equal(reason(judgeResolved(policy, 'b.example', '198.51.100.7')), 'not_allowed');
  assert.equal(reason(judgeResolved(policy, 'b.example', '203.0.113.9')), 'denied_by_rule');
  assert.equal(reason(judgeResolved(policy, 'b.example', '10.0.0.1')), 'private_address');
  assert.equal(judgeQuestion(policy, 'evil.example'), 'refused');
  assert.equal(reason(judgeResolved(policy, 'evil.example', SERVER)), 'denied_by_rule');
  assert.equal(judgeQuestion(policy, 'b..example'), 'refused');
});

test('address rules that match no address a guest can use open no name', () => {
  for (const rules of [
    { allow: ['2a00::/32'] },
    { allow: ['::/0'] },
    { allow: ['203.0.113.8/29'], deny: ['203.0.113.0/24'] },
    { deny: ['0.0.0.0/0'] },
  ])
    assert.equal(judgeQuestion(compile(rules), 'a.example'), 'refused', JSON.stringify(rules));
});

test('an allowed name at an address of the guest is dialled by name; at a denied address it is refused', () => {
  const policy = compile({ allow: ['a.example', '*'], deny: ['198.51.100.0/24', 'evil.example'] });
  assert.equal(outcome(judge(policy, { address: SERVER, name: 'a.example' })), 'name');
  assert.equal(reason(judge(policy, { address: '198.51.100.7', name: 'a.example' })), 'denied_by_rule');
  assert.equal(reason(judgeResolved(policy, 'a.example', '198.51.100.7')), 'denied_by_rule');
  assert.equal(reason(judge(policy, { address: SERVER, name: 'EVIL.example.' })), 'denied_by_rule');
});

test('an address rule allows a connection that hides its name, but not one that shows a denied name', () => {
  const policy = compile({ allow: ['203.0.113.0/24'], deny: ['evil.example'] });
  assert.equal(judgeAddress(policy, SERVER), undefined);
  assert.equal(outcome(judge(policy, { address: SERVER, isNameHidden: true })), 'address');
  assert.equal(outcome(judge(policy, { address: SERVER, name: 'other.example' })), 'address');
  assert.equal(reason(judge(policy, { address: SERVER, name: 'evil.example' })), 'denied_by_rule');
});

test('in a CNAME chain only denied and unreadable names stop the answer', () => {
  const policy = compile({ deny: ['*.evil.example'] });
  assert.equal(isNameDenied(policy, 'a.evil.example.'), true);
  assert.equal(isNameDenied(policy, 'cdn.example'), false);
  assert.equal(isNameDenied(policy, 'a..example'), true);
  assert.equal(isNameDenied(compile({ allow: ['a.example'] }), 'a..example'), false);
});

test('text that is not an address is refused', () => {
  const policy = compile({});
  for (const address of ['', 'localhost', '127.1', '1.2.3.4.5'])
    assert.equal(reason(judge(policy, { address })), 'reserved_address', address);
});

test('a new policy ends connections that it would dial elsewhere', () => {
  const policy = compile({ allow: ['a.example'] });
  const destination = { address: SERVER, name: 'a.example' };
  assert.equal(reason(judgeFlow(policy, destination, { address: SERVER })), 'name_not_resolved');
  assert.equal(
    reason(judgeFlow(policy, destination, { address: SERVER, name: 'b.example' })),
    'name_not_resolved',
  );
  assert.equal(judgeFlow(policy, destination, { address: '203.0.113.8', name: 'a.example' }).action, 'allow');
  const onlyThere = compile({ allow: [SERVER] });
  assert.equal(
    reason(judgeFlow(onlyThere, destination, { address: '203.0.113.8', name: 'a.example' })),
    'not_allowed',
  );
});
