/**
 * Node's reporter `spec`, which says why a test failed only when all have ended: this one says it at once, too, where it
 * is found in a long log.
 */
import { spec as SpecReporter } from 'node:test/reporters';
import { kindOf, reasonOf } from './event-reporter.mjs';

/** @param {AsyncIterable<import('./event-reporter.mjs').NodeEvent>} source */
async function* report(source) {
  const spec = new SpecReporter();
  spec.setEncoding('utf8');
  const take = () => /** @type {string | null} */ (spec.read()) ?? '';
  for await (const event of source) {
    spec.write(event);
    yield take();
    const { type, data } = event;
    if (kindOf(type, data) === 'fail')
      yield `!!! ${data.name}\n${reasonOf(data).replaceAll(/^/gmu, '    ')}\n`;
  }
  spec.end();
  for await (const rest of spec) yield rest;
}

// oxlint-disable-next-line import/no-default-export -- Node loads a reporter by its default export
export default report;
