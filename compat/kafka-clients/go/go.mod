module entrepot/compat/kafka-clients

go 1.23

require (
	github.com/confluentinc/confluent-kafka-go/v2 v2.11.1
	github.com/segmentio/kafka-go v0.4.51
)

require (
	github.com/klauspost/compress v1.17.9 // indirect
	github.com/pierrec/lz4/v4 v4.1.15 // indirect
)
