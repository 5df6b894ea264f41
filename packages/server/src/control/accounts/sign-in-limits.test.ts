import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SignInLimits } from './sign-in-limits.ts';

const REFUSED = /too many wrong passwords; try again in 900 s/;

test('an account is guessed at only so often, from however many addresses', () => {
  const limits = new SignInLimits(() => 0);
  for (let guess = 0; guess < 20; guess += 1) limits.takeSignIn('ada@example.test', `192.0.2.${guess}`);
  assert.throws(() => limits.takeSignIn('ada@example.test', '192.0.2.99'), REFUSED);
  limits.takeSignIn('bob@example.test', '192.0.2.99');
});

test('an address guesses only so often, at however many accounts; an IPv6 network is one', () => {
  const limits = new SignInLimits(() => 0);
  for (let guess = 0; guess < 100; guess += 1)
    limits.takeSignIn(`${guess}@example.test`, `2001:db8::${guess}`);
  assert.throws(() => limits.takeSignIn('ada@example.test', '2001:db8::ffff'), REFUSED);
  limits.takeSignIn('ada@example.test', '2001:db8:0:1::1');
});

test('right passwords count against nobody', () => {
  const limits = new SignInLimits(() => 0);
  for (let round = 0; round < 200; round += 1) limits.takeSignIn('ada@example.test', '192.0.2.1').giveBack();
});

test('an address makes only so many accounts', () => {
  const limits = new SignInLimits(() => 0);
  for (let round = 0; round < 30; round += 1) limits.takeSignUp('192.0.2.1');
  assert.throws(() => limits.takeSignUp('192.0.2.1'), /too many sign-ups from your address/);
  limits.takeSignUp('192.0.2.2');
});
