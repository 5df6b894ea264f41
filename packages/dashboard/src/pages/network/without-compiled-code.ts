/**
 * The policy of the page forbids code that is compiled from text. The schema library tries it with its first schema, and
 * the browser reports that as a breach: load this before anything with a schema.
 */
import { config } from 'zod';

config({ jitless: true });
