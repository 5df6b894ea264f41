import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SignInLimits } from './sign-in-limits.ts';

const REFUSED = /too many wrong passwords; try again in 900 s/;

test('guesses at one account are limited, however many addresses they come from', () => {
  const limits = new SignInLimits(
    () => 0,
    (limit) => limit,
  );
  for (let guess = 0; guess < 20; guess += 1) limits.takeSignIn('ada@example.test', `192.0.2.${guess}`);
  assert.throws(() => limits.takeSignIn('ada@example.test', '192.0.2.99'), REFUSED);
  limits.takeSignIn('bob@example.test', '192.0.2.99');
});

test('guesses from one address are limited, at however many accounts; an IPv6 network counts as one address', () => {
  const limits = new SignInLimits(
    () => 0,
    (limit) => limit,
  );
  for (let guess = 0; guess < 100; guess += 1)
    limits.takeSignIn(`${guess}@example.test`, `2001:db8::${guess}`);
  assert.throws(() => limits.takeSignIn('ada@example.test', '2001:db8::ffff'), REFUSED);
  limits.takeSignIn('ada@example.test', '2001:db8:0:1::1');
});

test('right passwords are not counted', () => {
  const limits = new SignInLimits(
    () => 0,
    (limit) => limit,
  );
  for (let round = 0; round < 200; round += 1) limits.takeSignIn('ada@example.test', '192.0.2.1').giveBack();
});

test('sign-ups from one address are limited', () => {
  const limits = new SignInLimits(
    () => 0,
    (limit) => limit,
  );
  for (let round = 0; round < 30; round += 1) limits.takeSignUp('192.0.2.1');
  assert.throws(() => limits.takeSignUp('192.0.2.1'), /too many sign-ups from your address/);
  limits.takeSignUp('192.0.2.2');
});
