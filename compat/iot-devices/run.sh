#!/usr/bin/env bash
# The device SDKs of AWS IoT Core and of Azure IoT Hub against entrepot, under TLS. Needs openssl, and
# pip to fetch them, or IOT_PYTHON=a Python that has awsiotsdk, azure-iot-device and paho-mqtt 1.6.
# Port 8883 must be free: Azure's device connects there and nowhere else.
. "$(dirname "$0")/../harness.sh"

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

shown() {
  grep -qxF "PASS $1" "$WORK/shown" && return
  grep -F "FAIL $1" "$WORK/shown" || tail -5 "$WORK/shown"
  return 1
}

if [ -z "${IOT_PYTHON:-}" ]; then
  IOT_PYTHON=$WORK/venv/bin/python
  python3 -m venv "$WORK/venv" &&
    "$IOT_PYTHON" -m pip install --quiet awsiotsdk azure-iot-device "paho-mqtt<2" >"$WORK/pip" 2>&1 ||
    { echo "SKIP  iot-devices: pip could not fetch the SDKs"; exit 0; }
fi
if ! openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost \
  -out "$WORK/own.pem" -keyout "$WORK/own.key" \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 >"$WORK/openssl" 2>&1; then
  echo "SKIP  iot-devices: no openssl"
  exit 0
fi
cat >"$WORK/entrepot.toml" <<EOF
[tls]
certificate = "$WORK/own.pem"
key = "$WORK/own.key"
EOF
OWN=127.0.0.1:$(free_port)
start_server --config "$WORK/entrepot.toml" --mqtt-port "${OWN##*:}" --mqtt-tls-port 8883
"$IOT_PYTHON" "$HERE/devices.py" "$OWN" 8883 "$WORK/own.pem" >"$WORK/shown" 2>"$WORK/said-by"
while read -r name; do
  check "$name" shown "$name"
done < <("$IOT_PYTHON" "$HERE/devices.py" --list)
report
