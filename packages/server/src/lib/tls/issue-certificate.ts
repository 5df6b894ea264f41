/** Makes X.509 certificates with keys of P-256 (RFC 5280): those of an authority, and those that it or their own key signs. */
import {
  createHash,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
  type KeyObject,
} from 'node:crypto';
import {
  bitString,
  derTrue,
  integer,
  octetString,
  oid,
  sequence,
  set,
  tagged,
  time,
  utf8String,
} from './der.ts';

const OID = {
  commonName: '2.5.4.3',
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
  subjectKeyId: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  authorityKeyId: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
  clientAuth: '1.3.6.1.5.5.7.3.2',
} as const;
const VERSION_3 = Buffer.of(2);
const SERIAL_BYTES = 16;
const KEY_ID_BYTES = 20;
const PEM_LINE = /.{1,64}/gu;

export interface CertificateRequest {
  commonName: string;
  publicKey: KeyObject;
  validFrom: Date;
  validTo: Date;
  /** Subject alternative name. */
  uri?: string;
  /** Whether the certificate may sign others. */
  isAuthority?: boolean;
}

export interface Issuer {
  commonName: string;
  /** Private. */
  key: KeyObject;
}

export interface KeyPair {
  publicKey: KeyObject;
  privateKey: KeyObject;
}

export function makeKeyPair(): KeyPair {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

/** Returns a certificate in PEM. The key of `issuer` may be that of the certificate itself. */
export function issueCertificate(request: CertificateRequest, issuer: Issuer): string {
  const { commonName, publicKey, validFrom, validTo } = request;
  const signed = sequence(
    tagged(0xa0, integer(VERSION_3)),
    integer(makeSerial()),
    sequence(oid(OID.ecdsaWithSha256)),
    encodeName(issuer.commonName),
    sequence(time(validFrom), time(validTo)),
    encodeName(commonName),
    encodeKey(publicKey),
    tagged(0xa3, sequence(...listExtensions(request, createPublicKey(issuer.key)))),
  );
  const signature = sign('sha256', signed, issuer.key);
  return toPem(sequence(signed, sequence(oid(OID.ecdsaWithSha256)), bitString(signature)));
}

/** Returns the private key in PEM. */
export function exportKey(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function makeSerial(): Buffer {
  const serial = randomBytes(SERIAL_BYTES);
  // Positive and without a leading zero, whatever the random bits are.
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  return serial;
}

function encodeName(commonName: string): Buffer {
  return sequence(set(sequence(oid(OID.commonName), utf8String(commonName))));
}

function encodeKey(key: KeyObject): Buffer {
  return key.export({ type: 'spki', format: 'der' });
}

function identifyKey(key: KeyObject): Buffer {
  return createHash('sha256').update(encodeKey(key)).digest().subarray(0, KEY_ID_BYTES);
}

function listExtensions(
  { publicKey, uri, isAuthority = false }: CertificateRequest,
  issuer: KeyObject,
): Buffer[] {
  return [
    extension(
      OID.basicConstraints,
      isAuthority ? sequence(derTrue(), integer(Buffer.of(0))) : sequence(),
      true,
    ),
    // keyCertSign, or digitalSignature
    extension(
      OID.keyUsage,
      isAuthority ? bitString(Buffer.of(0x04), 2) : bitString(Buffer.of(0x80), 7),
      true,
    ),
    ...(isAuthority
      ? []
      : [extension(OID.extendedKeyUsage, sequence(oid(OID.serverAuth), oid(OID.clientAuth)))]),
    ...(uri === undefined
      ? []
      : [extension(OID.subjectAltName, sequence(tagged(0x86, Buffer.from(uri, 'latin1'))))]),
    extension(OID.subjectKeyId, octetString(identifyKey(publicKey))),
    extension(OID.authorityKeyId, sequence(tagged(0x80, identifyKey(issuer)))),
  ];
}

function extension(id: string, value: Buffer, isCritical = false): Buffer {
  return sequence(oid(id), ...(isCritical ? [derTrue()] : []), octetString(value));
}

function toPem(der: Buffer): string {
  const lines = der.toString('base64').match(PEM_LINE) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}
