module peers/gnet

go 1.25.0

require (
	github.com/evanphx/wildcat v0.0.0-20141114174135-e7012f664567
	github.com/panjf2000/gnet/v2 v2.9.8
)

require (
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/vektra/errors v0.0.0-20140903201135-c64d83aba85a // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)
