import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readSetting } from '../../../../../scripts/setup/paths.mjs';

const DAY_MS = 86_400_000;
const WARN_DAYS = 14;

/** @typedef {import('../doctor.mjs').Row} Row */

/** @returns {Row[]} */
export function inspectTls() {
  const path = readSetting('COPPICE_TLS_CERT', '');
  if (path === '') return [];
  return [judgeCertificate(readFileSync(path, 'utf8'), Date.now())];
}

/**
 * @param {string} pem
 * @param {number} nowMs
 * @returns {Row}
 */
function judgeCertificate(pem, nowMs) {
  const { validTo, subject } = new X509Certificate(pem);
  const days = Math.floor((Date.parse(validTo) - nowMs) / DAY_MS);
  const remedy = 'renew it, and replace the files that COPPICE_TLS_CERT and COPPICE_TLS_KEY name';
  const detail = `${subject.replaceAll('\n', ', ')}, valid until ${validTo}`;
  if (days < 0) return { name: 'tls', status: 'fail', detail: `expired: ${detail}`, remedy };
  return {
    name: 'tls',
    status: days < WARN_DAYS ? 'warn' : 'ok',
    detail,
    ...(days < WARN_DAYS ? { remedy } : {}),
  };
}
